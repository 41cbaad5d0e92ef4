"""Prefill wrappers in graph mode, their workspaces, and what a wrapper is."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from tests.rocade.batches import (
    DIM,
    FP32,
    HEADS,
    PAGE,
    SIZES,
    Batch,
    Paged,
    Ragged,
    dense,
    mixed,
    plan_paged,
    plan_ragged,
    workspace,
)
from tests.rocade.paged import int32

import rocade

NAN = float("nan")


@pytest.fixture
def batch() -> Batch:
    return mixed()


def graph_buffers(requests: int, pages: int = 16) -> dict[str, Any]:
    return {
        "use_cuda_graph": True,
        "qo_indptr_buf": torch.zeros(requests + 1, dtype=torch.int32),
        "paged_kv_indptr_buf": torch.zeros(requests + 1, dtype=torch.int32),
        "paged_kv_indices_buf": torch.full((pages,), -1, dtype=torch.int32),
        "paged_kv_last_page_len_buf": torch.zeros(requests, dtype=torch.int32),
    }


def test_graph_mode_keeps_plans_in_the_callers_buffers(batch: Batch) -> None:
    buffers = graph_buffers(4)
    wrapper = plan_paged(batch, Paged(workspace(), **buffers))
    assert wrapper.is_cuda_graph_enabled
    assert buffers["qo_indptr_buf"].tolist() == batch.qo_indptr.tolist()
    assert buffers["paged_kv_indptr_buf"].tolist() == batch.pages.indptr.tolist()
    assert buffers["paged_kv_last_page_len_buf"].tolist() == batch.pages.last_page_len.tolist()
    used = batch.pages.indices.numel()
    assert buffers["paged_kv_indices_buf"].tolist() == [*batch.pages.indices.tolist(), *[-1] * (16 - used)]
    assert wrapper._problem.levels[0].pages.indices.data_ptr() == buffers["paged_kv_indices_buf"].data_ptr()  # type: ignore[union-attr]
    batch.check(wrapper.run(batch.q, batch.fused, return_lse=True))


def test_graph_mode_fills_padding_rows(batch: Batch) -> None:
    wrapper = plan_paged(batch, Paged(workspace(), **graph_buffers(4)))
    padded = torch.cat([batch.q, torch.full((3, HEADS, DIM), NAN)])
    out, lse = torch.full((11, HEADS, DIM), NAN), torch.full((11, HEADS), NAN)
    wrapper.run(padded, batch.fused, out=out, lse=lse)
    batch.check((out[:8], lse[:8]))
    assert (out[8:] == 0).all()
    assert (lse[8:] == float("-inf")).all()


def test_graph_mode_fixes_batch_size_and_rows(batch: Batch) -> None:
    wrapper = plan_paged(batch, Paged(workspace(), **graph_buffers(4)))
    with pytest.raises(ValueError, match="qo_indptr: got 1 requests, expected 4, fixed by the graph buffers"):
        plan_paged(Batch([1], [3]), wrapper)
    with pytest.raises(ValueError, match="qo_indptr: got 9 rows, expected at most 8"):
        plan_paged(Batch([3, 1, 0, 5], [9, 1, 6, 4]), wrapper)
    with pytest.raises(ValueError, match="paged_kv_indices: got 6 entries, expected at most 5"):
        plan_paged(batch, Paged(workspace(), **graph_buffers(4, pages=5)))
    ragged = Ragged(
        workspace(), use_cuda_graph=True, qo_indptr_buf=batch.qo_indptr.clone(), kv_indptr_buf=int32([0] * 5)
    )
    batch.check(plan_ragged(batch, ragged).run(batch.q, *dense(batch), return_lse=True))
    assert ragged._kv_indptr_buf.tolist() == batch.kv_indptr.tolist()  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="qo_indptr: got 1 requests"):
        plan_ragged(Batch([1], [3]), ragged)


def test_graph_mode_takes_masks_only_with_buffers(batch: Batch) -> None:
    mask = torch.rand(47, generator=torch.Generator().manual_seed(3)) > 0.5
    with pytest.raises(ValueError, match="custom_mask: got a mask in graph mode, expected custom_mask_buf"):
        plan_paged(batch, Paged(workspace(), **graph_buffers(4)), custom_mask=mask)
    bits, indptr = torch.zeros(16, dtype=torch.uint8), torch.zeros(5, dtype=torch.int32)
    wrapper = Paged(workspace(), **graph_buffers(4), custom_mask_buf=bits, mask_indptr_buf=indptr)
    plan_paged(batch, wrapper, custom_mask=mask)
    assert indptr.tolist() == [0, 4, 4, 4, 7]
    masks = [mask[:27].view(3, 9), mask[:0].view(0, 0), mask[:0].view(0, 6), mask[27:].view(5, 4)]
    batch.check(wrapper.run(batch.q, batch.fused, return_lse=True), masks)


@pytest.mark.parametrize(
    ("name", "buffer", "named"),
    [
        ("qo_indptr_buf", None, "qo_indptr_buf: got NoneType"),
        ("paged_kv_indptr_buf", int32([0, 0]), "paged_kv_indptr_buf: got 2 entries, expected 5"),
        ("paged_kv_indices_buf", torch.zeros(4), "paged_kv_indices_buf: got torch.float32"),
        ("paged_kv_last_page_len_buf", None, "paged_kv_last_page_len_buf: got NoneType"),
    ],
)
def test_malformed_graph_buffers_are_named(name: str, buffer: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Paged(workspace(), **{**graph_buffers(4), name: buffer})


def test_buffers_without_graph_mode_are_left_alone(batch: Batch) -> None:
    buffers = {**graph_buffers(2), "use_cuda_graph": False}
    batch.check(plan_paged(batch, Paged(workspace(), **buffers)).run(batch.q, batch.fused, return_lse=True))
    assert (buffers["paged_kv_indices_buf"] == -1).all()


def test_another_workspace_is_used_from_then_on(batch: Batch) -> None:
    wrapper = plan_paged(batch, causal=True)
    other = workspace()
    wrapper.reset_workspace_buffer(other, torch.empty(8, dtype=torch.uint8))
    assert wrapper._float_workspace_buffer is other
    assert wrapper._problem.workspace is other  # type: ignore[union-attr]
    batch.check(wrapper.run(batch.q, batch.fused, return_lse=True), causal=True)
    for bad, named in ((None, "NoneType"), (other[1:], "misaligned"), (other.to("meta"), "device meta")):
        with pytest.raises(ValueError, match=f"float_workspace_buffer: got .*{named}"):
            wrapper.reset_workspace_buffer(bad)  # type: ignore[arg-type]


def test_workspace_size_plans_nothing(batch: Batch) -> None:
    wrapper = Paged(workspace())
    sizes = wrapper.workspace_size(batch.qo_indptr, *batch.pages.table, *SIZES, PAGE, causal=True, **FP32)
    assert sizes == (plan_paged(batch, causal=True)._plan.workspace_bytes, 0)  # type: ignore[union-attr]
    with pytest.raises(rocade.NotPlannedError):
        wrapper.run(batch.q, batch.fused)
    ragged = Ragged(workspace())
    assert ragged.workspace_size(batch.qo_indptr, batch.kv_indptr, *SIZES, **FP32)[1] == 0
    with pytest.raises(ValueError, match="num_qo_heads"):
        ragged.workspace_size(batch.qo_indptr, batch.kv_indptr, 5, 2, DIM)
    with pytest.raises(TypeError):
        ragged.workspace_size(batch.qo_indptr)


def test_wrappers_cannot_be_copied(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            attempt(wrapper)

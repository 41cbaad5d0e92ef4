"""Malformed input: one spoilt argument a row; each is a ValueError that names it and says what was wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.rocade import bad_calls as call
from tests.rocade.paged import indptr, int32, rand, workspace

import rocade

Row = tuple[Callable[..., Any], str, Any, str]
NAN = float("nan")
META = torch.device("meta")


def flat_mask(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.bool)


def state(
    rows: int = 5, dim: int = 16, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    return rand(rows, 4, dim, dtype=dtype), rand(rows, 4)


def tables(prefix: str, where: str = "") -> list[tuple[str, Any, str]]:
    """Spoilt page tables, for every wrapper that takes one."""
    name = f"{where}{prefix}"
    return [
        (f"{name}indptr", int32([0, 2, 1, 5]), f"{prefix}indptr"),
        (f"{name}indptr", int32([-1, 2, 2, 5]), f"{prefix}indptr"),
        (f"{name}indptr", int32([0, 2, 5]), f"{prefix}(indptr|last_page_len)"),
        (f"{name}indptr", int32([]), f"{prefix}indptr"),
        (f"{name}indptr", torch.tensor([0.0, 2, 2, 5]), f"{prefix}indptr"),
        (f"{name}indptr", int32([0, 2, 2, 5]).reshape(2, 2), f"{prefix}indptr"),
        (f"{name}indptr", [0, 2, 2, 5], f"{prefix}indptr"),
        (f"{name}indices", int32([4, 0, 2, 5]), f"{prefix}indices"),
        (f"{name}indices", int32([4, 0, 2, -5, 1]), f"{prefix}indices"),
        (f"{name}indices", int32([4, 0, 2, 6, 1]), "cache"),
        (f"{name}indices", int32([4, 0, 2, 2**31 - 1, 1]), "cache"),
        (f"{name}indices", torch.tensor([4.0, 0, 2, 5, 1]), f"{prefix}indices"),
        (f"{name}last_page_len", int32([0, 0, 1]), f"{prefix}last_page_len"),
        (f"{name}last_page_len", int32([1, 0, 5]), f"{prefix}last_page_len"),
        (f"{name}last_page_len", int32([1, 0, -3]), f"{prefix}last_page_len"),
        (f"{name}last_page_len", int32([1, 1]), f"{prefix}(indptr|last_page_len)"),
    ]


SHAPES = [
    ("num_qo_heads", 5, "num_qo_heads"),
    ("num_qo_heads", 0, "num_qo_heads"),
    ("num_kv_heads", 3, "num_qo_heads|num_kv_heads"),
    ("num_kv_heads", -2, "num_kv_heads"),
    ("num_kv_heads", "two", "num_kv_heads"),
]
OPTIONS = [
    ("pos_encoding_mode", "ROPE", "pos_encoding_mode"),
    ("pos_encoding_mode", None, "pos_encoding_mode"),
    ("sm_scale", NAN, "sm_scale"),
    ("window_left", 1.5, "window_left"),
    ("logits_soft_cap", -1.0, "logits_soft_cap"),
    ("logits_soft_cap", NAN, "logits_soft_cap"),
    ("plan.rope_theta", 0.0, "rope_theta"),
    ("plan.rope_scale", -1.0, "rope_scale"),
    ("q_data_type", "float17", "q_data_type"),
    ("q_data_type", torch.int8, "q_data_type"),
    ("q_data_type", torch.float8_e4m3fn, "q_data_type"),
    ("plan.kv_data_type", "int4", "kv_data_type"),
]
INITS = [
    ("kv_layout", "NDH", "kv_layout"),
    ("kv_layout", None, "kv_layout"),
    ("backend", "fa9", "backend"),
    ("float_workspace_buffer", torch.empty(64, dtype=torch.uint8)[1:], "float_workspace_buffer"),
    ("float_workspace_buffer", torch.empty(64, dtype=torch.uint8)[::2], "float_workspace_buffer"),
    ("float_workspace_buffer", None, "float_workspace_buffer"),
]
QUERIES = [
    ("q", rand(4, 4, 16), "q"),
    ("q", rand(5, 2, 16), "q"),
    ("q", rand(5, 4, 8), "q"),
    ("q", rand(5, 64), "q"),
    ("q", rand(5, 4, 16, dtype=torch.float16), "q"),
    ("q", torch.empty(5, 4, 16, device=META), "q"),
    ("q", rand(5, 4, 32)[..., ::2], "q"),
    ("q", None, "q"),
]
RUNS = [
    ("run.out", rand(4, 4, 16), "out"),
    ("run.out", rand(5, 4, 16, dtype=torch.float16), "out"),
    ("run.out", torch.empty(5, 4, 16, device=META), "out"),
    ("run.lse", rand(5, 4, dtype=torch.float16), "lse"),
    ("run.lse", rand(4, 5), "lse"),
    ("run.k_scale", NAN, "k_scale"),
    ("run.q_scale", torch.ones(2), "q_scale"),
    ("run.v_scale", "big", "v_scale"),
]
CACHES = [
    ("cache", rand(6, 4, 2, 16), "cache"),
    ("cache", (rand(6, 4, 2, 16),), "cache"),
    ("cache", (rand(6, 4, 2, 16), rand(5, 4, 2, 16)), "cache"),
    ("cache", (rand(6, 2, 4, 16), rand(6, 2, 4, 16)), "cache"),
    ("cache", (rand(6, 4, 2, 8), rand(6, 4, 2, 8)), "cache"),
    ("cache", tuple(rand(6, 4, 2, 16, dtype=torch.float16) for _ in "kv"), "cache"),
    ("cache", tuple(rand(6, 4, 2, 32)[..., ::2] for _ in "kv"), "cache"),
    ("cache", tuple(torch.empty(6, 4, 2, 16, device=META) for _ in "kv"), "cache"),
    ("cache", rand(6, 3, 4, 2, 16), "cache"),
    ("cache", None, "cache"),
]


def rename(rows: list[tuple[str, Any, str]], name: str) -> list[tuple[str, Any, str]]:
    return [(name, value, pattern) for _, value, pattern in rows]


PAGED = [
    *tables("paged_kv_"),
    *SHAPES,
    *OPTIONS,
    *INITS,
    *QUERIES,
    *RUNS,
    *rename(CACHES, "paged_kv_cache"),
    ("page_size", 0, "page_size"),
    ("head_dim_qk", 0, "head_dim_qk"),
    ("plan.head_dim_vo", -1, "head_dim_vo"),
    ("qo_indptr", int32([0, 3, 2, 5]), "qo_indptr"),
    ("qo_indptr", int32([1, 2, 2, 5]), "qo_indptr"),
    ("qo_indptr", indptr([2, 3]), "(qo_indptr|last_page_len)"),
    ("custom_mask", flat_mask(36), "custom_mask"),
    ("custom_mask", flat_mask(38), "custom_mask"),
    ("custom_mask", rand(37), "custom_mask"),
    ("packed_custom_mask", torch.zeros(5, dtype=torch.uint8), "packed_custom_mask"),
    ("packed_custom_mask", torch.zeros(6), "packed_custom_mask"),
    ("run.window_left", 3, "window_left"),
    ("run.partial_state", state(rows=4), r"partial_state\[0\]"),
    ("run.partial_state", state(dim=8), r"partial_state\[0\]"),
    ("run.partial_state", state(dtype=torch.float16), r"partial_state\[0\]"),
    ("run.partial_state", (rand(5, 4, 16), rand(4, 5)), r"partial_state\[1\]"),
    ("run.partial_state", (rand(5, 4, 16), rand(5, 4, dtype=torch.float16)), r"partial_state\[1\]"),
    ("run.partial_state", (rand(5, 4, 16), None), r"partial_state\[1\]"),
    ("run.partial_state", rand(5, 4, 16), "partial_state"),
    ("plan.fixed_split_size", 0, "fixed_split_size"),
    ("plan.seq_lens", int32([5, 0, 8]), "seq_lens"),
    ("plan.max_sequence_kv", 8, "max_sequence_kv"),
    ("plan.max_token_per_sequence", 2, "max_token_per_sequence"),
]
RAGGED = [
    *SHAPES,
    *OPTIONS,
    *INITS,
    *QUERIES,
    *RUNS,
    ("qo_indptr", int32([0, 3, 2, 5]), "qo_indptr"),
    ("kv_indptr", int32([0, 5, 4, 14]), "kv_indptr"),
    ("kv_indptr", int32([-2, 5, 5, 14]), "kv_indptr"),
    ("kv_indptr", indptr([5, 9]), "(qo|kv)_indptr"),
    ("kv_indptr", indptr([5, 0, 10]), "k"),
    ("k", rand(14, 3, 16), "k"),
    ("k", rand(14, 2, 8), "k"),
    ("k", rand(14, 2, 16, dtype=torch.float16), "k"),
    ("k", torch.empty(14, 2, 16, device=META), "k"),
    ("v", rand(13, 2, 16), "v"),
    ("v", rand(14, 2, 32)[..., ::2], "v"),
    ("v", None, "v"),
    ("custom_mask", flat_mask(36), "custom_mask"),
    ("custom_mask", flat_mask(38), "custom_mask"),
    ("packed_custom_mask", torch.zeros(7, dtype=torch.uint8), "packed_custom_mask"),
]
DECODE = [
    *tables(""),
    *SHAPES,
    *OPTIONS,
    *INITS,
    *(
        (name, value[:3] if isinstance(value, torch.Tensor) and value.dim() == 3 else value, pattern)
        for name, value, pattern in QUERIES[1:]
    ),
    ("q", rand(5, 4, 16), "q"),
    *rename(CACHES, "paged_kv_cache"),
    ("head_dim", 0, "head_dim"),
    ("page_size", -4, "page_size"),
    ("q_len_per_req", 0, "q_len_per_req"),
    ("q_len_per_req", 6, "(indptr|q_len_per_req)"),
    ("run.q_len_per_req", 2, "q_len_per_req"),
    ("run.window_left", 0, "window_left"),
    ("plan.seq_lens", int32([5, 0, 8]), "seq_lens"),
]
ARRAYS = ("qo_indptr_arr", "paged_kv_indptr_arr", "paged_kv_indices_arr", "paged_kv_last_page_len")
LEVELS = [
    *SHAPES,
    *OPTIONS,
    *INITS,
    *QUERIES,
    *RUNS,
    *rename(CACHES, "paged_kv_cache"),
    ("num_levels", 0, "num_levels"),
    ("num_levels", 3, "_arr"),
    *((name, [int32([0, 5])], name) for name in ARRAYS),
    ("qo_indptr_arr", [int32([0, 4]), indptr([2, 0, 3])], "qo_indptr_arr"),
    ("qo_indptr_arr", [int32([0, 1, 5]), indptr([2, 0, 3])], "(qo|kv)_indptr_arr|last_page_len"),
    ("qo_indptr_arr", [int32([1, 5]), indptr([2, 0, 3])], "qo_indptr_arr"),
    ("paged_kv_indptr_arr", [int32([1, 0]), indptr([2, 0, 3])], "paged_kv_indptr_arr"),
    ("paged_kv_indices_arr", [int32([]), int32([4, 0, 2, 5, 1])], "paged_kv_indices_arr"),
    ("paged_kv_indices_arr", [int32([9]), int32([4, 0, 2, 5, 1])], "cache"),
    ("paged_kv_last_page_len", [int32([5]), int32([1, 0, 1])], "paged_kv_last_page_len"),
]
SHARED = [
    *tables("unique_kv_"),
    *INITS,
    ("q", rand(4, 4, 16), "q"),
    ("q", rand(3, 2, 16), "q"),
    ("k_shared", rand(7, 3, 16), "k_shared"),
    ("k_shared", rand(7, 2, 16, dtype=torch.float16), "k_shared|data_type"),
    ("v_shared", rand(6, 2, 16), "v_shared"),
    ("v_shared", None, "v_shared"),
    *rename(CACHES, "unique_kv_cache"),
]
SINGLE = [
    ("q", rand(3, 5, 16), "q"),
    ("q", rand(3, 4, 8), "q|k"),
    ("q", rand(3, 64), "q"),
    ("q", torch.ones(3, 4, 16, dtype=torch.int32), "q"),
    ("k", rand(7, 3, 16), "q|k|v"),
    ("k", rand(7, 2, 16, dtype=torch.float16), "k|v"),
    ("k", torch.empty(7, 2, 16, device=META), "k"),
    ("v", rand(6, 2, 16), "v"),
    ("v", rand(7, 2, 32)[..., ::2], "v"),
    ("kv_layout", "HDN", "kv_layout"),
    ("backend", "", "backend"),
    ("pos_encoding_mode", "rope", "pos_encoding_mode"),
    ("logits_soft_cap", -2.0, "logits_soft_cap"),
    ("sm_scale", float("inf"), "sm_scale"),
    ("window_left", "all", "window_left"),
    ("k_scale", NAN, "k_scale"),
]
SINGLE_PREFILL = [
    *SINGLE,
    ("custom_mask", flat_mask(20).reshape(4, 5), "custom_mask"),
    ("custom_mask", flat_mask(21), "custom_mask"),
    ("packed_custom_mask", torch.zeros(2, dtype=torch.uint8), "packed_custom_mask"),
    ("o_dtype", "int8", "o_dtype"),
]
SINGLE_DECODE = [
    *((n, v[0] if n == "q" else v, p) for n, v, p in SINGLE if not (n == "q" and v.dim() == 2)),
    ("q", rand(1, 4, 16), "q"),
]
APPEND = [
    ("append_key", rand(3, 3, 16), "append_key"),
    ("append_key", rand(3, 2, 16, dtype=torch.float16), "append_key"),
    ("append_value", rand(2, 2, 16), "append_value"),
    ("batch_indices", int32([0, 3, 2]), "batch_indices"),
    ("batch_indices", int32([0, -2, 2]), "batch_indices"),
    ("batch_indices", int32([0, 2]), "batch_indices"),
    ("positions", int32([4, 7, 12]), "positions"),
    ("positions", int32([-1, 7, 8]), "positions"),
    ("positions", rand(3), "positions"),
    ("kv_indices", int32([4, 0, 2, 6, 1]), "cache|kv_indices"),
    ("kv_indices", int32([4, 0]), "kv_indices"),
    ("kv_indptr", int32([0, 2, 1, 5]), "kv_indptr"),
    ("kv_last_page_len", int32([5, 0, 1]), "kv_last_page_len"),
    *rename(CACHES, "paged_kv_cache"),
    ("kv_layout", "nhd", "kv_layout"),
    ("backend", "cuda", "backend"),
]
STATES: list[Row] = [
    (call.merge_state, "v_b", rand(4, 3, 16), "v_b"),
    (call.merge_state, "v_b", rand(5, 3, 16, dtype=torch.float16), "v_b"),
    (call.merge_state, "s_a", rand(5, 4), "s_a"),
    (call.merge_state, "s_b", torch.ones(5, 3, dtype=torch.int32), "s_b"),
    (call.merge_state, "v_a", rand(5, 3, 32)[..., ::2], "v_a"),
    (call.merge_state, "v_a", torch.ones(5, 3, 16, dtype=torch.int32), "v_a"),
    (call.merge_state, "out", (rand(5, 3, 16), rand(5, 3, dtype=torch.float16)), r"out\[1\]"),
    (call.merge_state, "backend", "gpu", "backend"),
    (call.merge_in_place, "s", rand(5, 3, dtype=torch.float16), "s"),
    (call.merge_in_place, "v", rand(1, 3, 16).expand(5, 3, 16), "v"),
    (call.merge_in_place, "mask", flat_mask(4), "mask"),
    (call.merge_in_place, "mask", rand(5), "mask"),
    (call.merge_in_place, "s_other", rand(3, 5), "s_other"),
    (call.merge_states, "v", rand(5, 3, 16), "v"),
    (call.merge_states, "s", rand(5, 3, 2), "s"),
    (call.variable_merge, "indptr", int32([0, 3, 2]), "indptr"),
    (call.variable_merge, "indptr", int32([0, 2, 6]), "indptr"),
    (call.variable_merge, "indptr", int32([-1, 2, 5]), "indptr"),
    (call.variable_merge, "s", rand(4, 3), "s"),
    (call.attention_sum, "v", rand(5, 3, 16), "v"),
    (call.attention_sum, "out", rand(5, 2, 16), "out"),
    (call.variable_sum, "indptr", int32([0, 9]), "indptr"),
    (call.variable_sum, "v", torch.ones(5, 3, 16, dtype=torch.int64), "v"),
]
SMALL: list[Row] = [
    (call.seq_lens, "kv_last_page_len", int32([1, 0]), "kv_last_page_len"),
    (call.seq_lens, "page_size", 0, "page_size"),
    (call.positions, "seq_lens", int32([5, 0]), "seq_lens"),
    (call.positions, "seq_lens", int32([1, 0, 9]), "seq_lens"),
    (call.positions, "nnz", 4, "nnz"),
    (call.positions, "append_indptr", int32([0, 3, 2, 5]), "append_indptr"),
    (call.packbits, "bitorder", "middle", "bitorder"),
    (call.packbits, "x", torch.ones(2, 4), "x"),
    (call.segment_packbits, "indptr", int32([0, 10]), "indptr"),
    (call.segment_packbits, "indptr", int32([0, 5, 4]), "indptr"),
]


def rows(function: Callable[..., Any], table: list[tuple[str, Any, str]]) -> list[Row]:
    return [(function, *row) for row in table]


ALL: list[Row] = [
    *rows(call.paged_prefill, PAGED),
    *rows(call.ragged_prefill, RAGGED),
    *rows(call.decode, DECODE),
    *rows(call.multi_level, LEVELS),
    *rows(call.shared_decode, SHARED),
    *rows(call.single_prefill, SINGLE_PREFILL),
    *rows(call.single_decode, SINGLE_DECODE),
    *rows(call.append, APPEND),
    *STATES,
    *SMALL,
]


def shown(row: Row) -> str:
    value = row[2]
    text = f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
    return f"{row[0].__name__}-{row[1]}-{text[:40]}"


@pytest.mark.parametrize("function", call.CALLS)
def test_the_calls_are_well_formed_before_they_are_spoilt(function: Callable[..., Any]) -> None:
    function()


@pytest.mark.parametrize(("function", "name", "value", "pattern"), ALL, ids=[shown(row) for row in ALL])
def test_a_spoilt_argument_is_named(
    function: Callable[..., Any], name: str, value: object, pattern: str
) -> None:
    with pytest.raises(ValueError, match=pattern) as caught:
        function(**{name: value})
    said = str(caught.value)
    assert "got" in said
    assert "expected" in said


@pytest.mark.parametrize(
    "make",
    [
        rocade.BatchPrefillWithPagedKVCacheWrapper,
        rocade.BatchPrefillWithRaggedKVCacheWrapper,
        rocade.BatchDecodeWithPagedKVCacheWrapper,
    ],
)
def test_run_before_plan_says_so(make: Callable[..., Any]) -> None:
    with pytest.raises(rocade.NotPlannedError, match=r"plan\(\)"):
        make(workspace()).run(
            rand(1, 1, 8), rand(1, 2, 1, 1, 8), *([rand(1, 1, 8)] if "Ragged" in str(make) else [])
        )

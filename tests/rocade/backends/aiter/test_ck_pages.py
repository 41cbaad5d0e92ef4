"""AITER believes every page id: none leads outside the pool, and what came of one is NaN."""

from __future__ import annotations

import pytest
import torch
from tests.rocade.backends.aiter.model import stand_in

import rocade
from rocade_kernels.aiter.names import Family

HEADS, DIM, PAGE = 2, 128, 1024
LENS = (PAGE + 3, 5, 0, 2 * PAGE)


def table(ids: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    indptr = torch.tensor([0, 2, 3, 3, 5], dtype=torch.int32)
    last = torch.tensor([3, 5, 77, PAGE], dtype=torch.int32)
    return indptr, torch.tensor(ids, dtype=torch.int32), last


def run(backend: str, *, known: bool = True, second: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode over a pool of five pages. A table that is not known has its second id changed after checks."""
    generator = torch.Generator().manual_seed(7)
    cache = torch.randn(5, 2, PAGE, HEADS, DIM, generator=generator).to(torch.bfloat16)
    q = torch.randn(4, 2 * HEADS, DIM, generator=generator).to(torch.bfloat16)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(
        torch.empty(1 << 20, dtype=torch.uint8), backend=backend
    )
    indptr, indices, last = table((4, 1, 3, 0, 2))
    wrapper.plan(indptr, indices, last, 2 * HEADS, HEADS, DIM, PAGE, q_data_type=torch.bfloat16)
    if not known:
        pages = wrapper._problem.levels[0].pages
        pages.max_page = -1
        pages.indices[1] = second
        wrapper._plan = type(wrapper._plan)(wrapper._plan.request, wrapper._problem)
    return wrapper.run(q, cache, return_lse=True)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("native", [True, False])
def test_a_good_table(native: bool, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, expected_lse = run("torch")
    model = stand_in(monkeypatch, "gfx942", "0.1.20")
    model.native = native
    out, lse = run("aiter_ck", known=known)
    family = Family.MHA_BATCH_PREFILL if native else Family.MHA_VARLEN_FWD
    assert [library.key.family for library, _, _ in model.calls] == [family]
    torch.testing.assert_close(out.float(), expected.float(), atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(lse, expected_lse, atol=1e-2, rtol=1e-2)
    assert (out[2] == 0).all()
    assert (lse[2] == -torch.inf).all()


@pytest.mark.parametrize("bad", [-1, 5, 2**30])
@pytest.mark.parametrize("native", [True, False])
def test_a_page_outside_the_pool_spoils_its_request_alone(
    native: bool, bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, expected_lse = run("torch")
    model = stand_in(monkeypatch, "gfx942", "0.1.20")
    model.native = native
    out, lse = run("aiter_ck", known=False, second=bad)
    assert out[0].isnan().all()
    assert lse[0].isnan().all()
    torch.testing.assert_close(out[1:].float(), expected[1:].float(), atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(lse[1:], expected_lse[1:], atol=1e-2, rtol=1e-2)

"""The guarded fused CPU operator: its traps, its shapes, and bottom-right causal however it is split."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.rocade.backends.check import assert_close

from arch_caps import DType, MaskKind, Op, PosEncoding, Request
from rocade._plan import State
from rocade.backends.cpu._sdpa import attend, supports
from rocade.conformance import oracle

NAN = float("nan")
SCALE = 0.2


def draw(
    rows: int, keys: int, heads: tuple[int, int], dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    gen = torch.Generator().manual_seed(rows * 1000 + keys)
    sizes = (rows, heads[0]), (keys, heads[1]), (keys, heads[1])
    return tuple(torch.randn(*size, dim, generator=gen).to(dtype) for size in sizes)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> State:
    out, lse = torch.full_like(q, NAN), torch.full(q.shape[:2], NAN)
    attend(q, k, v, scale=SCALE, causal=causal, out=out, lse=lse)
    return State(out, lse)


def compare(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> None:
    want = oracle.attend(q, k, v, oracle.Rules(scale=SCALE, causal=causal))
    assert_close(run(q, k, v, causal=causal), want, q.dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "keys"),
    [(1, 1), (1, 40), (7, 7), (16, 48), (48, 16), (130, 130), (257, 257), (300, 900), (64, 2048), (1, 700)],
)
def test_matches_the_oracle(rows: int, keys: int, dtype: torch.dtype, causal: bool) -> None:
    compare(*draw(rows, keys, (4, 2), 32, dtype), causal=causal)


@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (5, 1), (14, 2), (64, 1)])
@pytest.mark.parametrize("dim", [8, 80, 256])
def test_any_group_size_and_head_dim(heads: tuple[int, int], dim: int) -> None:
    compare(*draw(20, 33, heads, dim, torch.float32), causal=True)
    compare(*draw(5, 33, heads, dim, torch.float32), causal=False)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "keys"), [(0, 0), (0, 5), (5, 0)])
def test_no_rows_or_no_keys(rows: int, keys: int, causal: bool) -> None:
    """The bare operator divides by zero here and ends the process."""
    got = run(*draw(rows, keys, (4, 2), 16, torch.float32), causal=causal)
    assert torch.equal(got.out, torch.zeros(rows, 4, 16))
    assert torch.equal(got.lse, torch.full((rows, 4), float("-inf")))


def test_rows_without_keys_of_a_causal_call() -> None:
    q, k, v = draw(9, 4, (4, 2), 16, torch.float32)
    got = run(q, k, v, causal=True)
    assert (got.out[:5] == 0).all()
    assert (got.lse[:5] == float("-inf")).all()
    assert torch.isfinite(got.lse[5:]).all()


def test_any_strides() -> None:
    """A last stride other than 1 makes the bare operator read garbage without a word."""
    q, k, v = draw(20, 50, (4, 2), 16, torch.float32)
    want = run(q, k, v, causal=True)
    wide = [torch.stack((x, torch.full_like(x, NAN)), dim=-1)[..., 0] for x in (q, k, v)]
    head_first = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (q, k, v)]
    for given in (wide, head_first):
        got = run(*given, causal=True)
        assert torch.equal(got.out, want.out)
        assert torch.equal(got.lse, want.lse)


def test_results_go_into_strided_buffers() -> None:
    q, k, v = draw(300, 310, (4, 2), 16, torch.bfloat16)
    want = run(q, k, v, causal=True)
    out = torch.full((300, 3, 4, 16), NAN, dtype=torch.bfloat16)
    lse = torch.full((4, 300), NAN)
    attend(q, k, v, scale=SCALE, causal=True, out=out[:, 1], lse=lse.t())
    assert torch.equal(out[:, 1], want.out)
    assert torch.equal(lse.t(), want.lse)
    assert out[:, 0].isnan().all()
    assert out[:, 2].isnan().all()


def test_results_of_another_dtype() -> None:
    q, k, v = draw(30, 40, (4, 2), 16, torch.float16)
    out, lse = torch.empty(30, 4, 16), torch.empty(30, 4)
    attend(q, k, v, scale=SCALE, causal=False, out=out, lse=lse)
    want = oracle.attend(q, k, v, oracle.Rules(scale=SCALE))
    assert_close(State(out, lse), want, torch.float32)  # fp16 in, but nothing was rounded to fp16


def test_inputs_that_need_a_gradient() -> None:
    q, k, v = (x.requires_grad_() for x in draw(4, 6, (4, 2), 16, torch.float32))
    out, lse = torch.empty(4, 4, 16), torch.empty(4, 4)
    attend(q, k, v, scale=SCALE, causal=True, out=out, lse=lse)
    assert not out.requires_grad


def test_refuses_what_the_operator_would_get_wrong() -> None:
    q, k, v = draw(4, 6, (6, 2), 16, torch.float32)
    out, lse = torch.empty_like(q), torch.empty(4, 6)
    with pytest.raises(ValueError, match="multiple"):
        attend(q[:, :5], k, v, scale=1.0, causal=False, out=out[:, :5], lse=lse[:, :5])
    with pytest.raises(ValueError, match="k and v"):
        attend(q, k, v[:, :, :8], scale=1.0, causal=False, out=out, lse=lse)
    with pytest.raises(ValueError, match="k and v"):
        attend(q[:, :, :8], k, v, scale=1.0, causal=False, out=out[:, :, :8], lse=lse)
    with pytest.raises(ValueError, match="lse"):
        attend(q, k, v, scale=1.0, causal=False, out=out, lse=lse.double())
    with pytest.raises(ValueError, match="out"):
        attend(q, k, v, scale=1.0, causal=False, out=out[:2], lse=lse)


PLAIN = Request(
    op=Op.SINGLE_PREFILL,
    q_dtype=DType.BF16,
    kv_dtype=DType.BF16,
    o_dtype=DType.BF16,
    num_qo_heads=8,
    num_kv_heads=2,
    head_dim_qk=64,
    head_dim_vo=64,
)


@pytest.mark.parametrize(
    "change",
    [
        {"mask": MaskKind.CUSTOM},
        {"window_left": 0},
        {"logits_soft_cap": 1.0},
        {"pos_encoding": PosEncoding.ALIBI},
        {"head_dim_vo": 32},
        {"kv_dtype": DType.FP8_E4M3},
    ],
)
def test_supports_nothing_but_plain_and_causal(change: dict[str, object]) -> None:
    assert supports(PLAIN)
    assert supports(replace(PLAIN, mask=MaskKind.CAUSAL))
    assert not supports(replace(PLAIN, **change))  # type: ignore[arg-type]

"""The tolerances accept an honest fp32 computation and refuse the mistakes they exist to find."""

from __future__ import annotations

import pytest
import torch

from arch_caps import DType
from rocade.conformance import oracle, oracle_states, tolerances
from rocade.conformance.cases import DTypes

TORCH = {DType.FP32: torch.float32, DType.FP16: torch.float16, DType.BF16: torch.bfloat16}
NAN = float("nan")


def setup(dtype: DType) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, oracle.Reference]:
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(n, 4, 64, generator=generator).to(TORCH[dtype]) for n in (8, 50, 50))
    return q, k, v, oracle.attend(q, k, v, oracle.Rules(scale=0.125))


def excess(out: torch.Tensor, lse: torch.Tensor, ref: oracle.Reference, dtype: DType) -> tuple[float, float]:
    allowed = tolerances.attention(ref, DTypes(dtype, dtype, dtype), 0)
    return (
        tolerances.largest_excess(out, ref.out, allowed[0])[0],
        tolerances.largest_excess(lse, ref.lse, allowed[1])[0],
    )


def fp32_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.einsum("nhd,mhd->hnm", q.float(), k.float()) * 0.125
    out = torch.einsum("hnm,mhd->nhd", logits.softmax(-1), v.float())
    return out, logits.logsumexp(-1).T * oracle.LOG2_E


@pytest.mark.parametrize("dtype", list(TORCH))
def test_fp32_arithmetic_passes_and_one_more_rounding_step_does_not(dtype: DType) -> None:
    q, k, v, ref = setup(dtype)
    out, lse = fp32_attention(q, k, v)
    assert max(excess(out.to(TORCH[dtype]), lse, ref, dtype)) <= 1
    coarser = out.to(torch.bfloat16) if dtype is not DType.BF16 else out.to(torch.float8_e4m3fn).float()
    assert excess(coarser, lse, ref, dtype)[0] > 1


def test_one_chain_of_multiply_adds_passes_with_room_to_spare() -> None:
    """The least accurate honest dot product: every product added to one fp32 accumulator in turn."""
    generator = torch.Generator().manual_seed(2)
    q, k = 2 * torch.randn(256, 16, 96, generator=generator), torch.randn(1, 16, 96, generator=generator)
    ref = oracle.attend(q, k, k, oracle.Rules(scale=96**-0.5))
    total = torch.zeros(256, 16)
    for d in range(96):
        total = (total.double() + q[..., d].double() * k[..., d].double()).float()
    lse = total * (96**-0.5) * oracle.LOG2_E
    worst = excess(ref.out, lse, ref, DType.FP32)[1]
    assert 0.1 < worst < 0.6


@pytest.mark.parametrize("dtype", list(TORCH))
def test_lse_in_base_e_or_of_one_key_too_few_is_refused(dtype: DType) -> None:
    q, k, v, ref = setup(dtype)
    out, lse = fp32_attention(q, k, v)
    assert excess(out, lse / oracle.LOG2_E, ref, dtype)[1] > 1000
    short_out, short_lse = fp32_attention(q, k[1:], v[1:])
    assert excess(short_out.to(TORCH[dtype]), short_lse, ref, dtype)[0] > 1
    assert excess(short_out, short_lse, ref, dtype)[1] > 1000


def test_nan_and_a_wrong_shape_are_infinitely_wrong() -> None:
    _, _, _, ref = setup(DType.FP32)
    nan = ref.out.clone()
    nan[3, 2, 1] = NAN
    worst, place = tolerances.largest_excess(nan, ref.out, torch.ones_like(ref.out))
    assert worst == float("inf")
    assert "[3, 2, 1]" in place
    assert tolerances.largest_excess(ref.out[1:], ref.out, ref.out)[0] == float("inf")


def test_rows_without_keys_are_exact() -> None:
    q, k, v, _ = setup(DType.BF16)
    ref = oracle.attend(q, k[:2], v[:2], oracle.Rules(scale=1.0, causal=True))
    out_tol, lse_tol = tolerances.attention(ref, DTypes(DType.BF16, DType.BF16, DType.BF16), 0)
    assert out_tol[:6].eq(0).all()
    assert lse_tol[:6].eq(0).all()
    tiny = ref.out.clone()
    tiny[0] = 1e-30
    assert tolerances.largest_excess(tiny, ref.out, out_tol)[0] == float("inf")
    finite = ref.lse.clone()
    finite[0] = -5e4
    assert tolerances.largest_excess(finite, ref.lse, lse_tol)[0] == float("inf")


def test_merge_tolerance_accepts_fp32_and_refuses_a_lost_state() -> None:
    generator = torch.Generator().manual_seed(0)
    v, s = torch.randn(5, 3, 2, 16, generator=generator), 4 * torch.randn(5, 3, 2, generator=generator)
    ref = oracle_states.merge_states(v, s)
    weights = torch.exp2(s - s.amax(1, keepdim=True))
    merged = (weights[..., None] * v).sum(1) / weights.sum(1)[..., None]
    lse = s.amax(1) + weights.sum(1).log2()
    v_tol, s_tol = tolerances.merge(ref, DType.FP32)
    assert tolerances.largest_excess(merged, ref.v, v_tol)[0] <= 1
    assert tolerances.largest_excess(lse, ref.s, s_tol)[0] <= 1
    assert tolerances.largest_excess(v[:, 0], ref.v, v_tol)[0] > 1

"""How far a result may be from the fp64 reference: what rounding explains, and nothing more.

Inputs are rounded to their dtype first and the reference is computed from those very values, so three sources
are left. Let u = 2^-24 be the unit roundoff of fp32, and U that of the storage type (2^-8 bf16, 2^-11 fp16).

1. The result is rounded once to its type: U |out|.
2. Arithmetic is fp32. A logit is a sum of head_dim products, wrong by a small multiple of u times the sum of
   their magnitudes (`logit_mass`); a shift d of logits moves a softmax weight by 2 d, hence the output by 2 d
   times the weighted mean of |v| (`out_mass`). exp, the division and the sum over keys add a few u of
   `out_mass`. In-kernel RoPE computes angles in fp32, which costs u times the position.
3. Where Q is 16-bit, matrix units and fused CPU kernels take the softmax weights in that type too. Each
   weight is then off by an independent rounding error, uniform within U (standard deviation 0.4 U over a
   binade), so the output by at most 2.5 U sqrt(sum (p v)^2): six standard deviations, `out_rms`.

An LSE never passes through a 16-bit type, so it is held to fp32 whatever the dtype. Rows without a visible
key are exact. None of this depends on the backend.
"""

from __future__ import annotations

import torch

from arch_caps import DType
from rocade.conformance.cases import DTypes
from rocade.conformance.oracle import LOG2_E, Reference
from rocade.conformance.oracle_states import MergedState

UNIT = {DType.FP32: 2.0**-24, DType.FP16: 2.0**-11, DType.BF16: 2.0**-8}
SUBNORMAL = {DType.FP32: 0.0, DType.FP16: 2.0**-25, DType.BF16: 0.0}  # half the spacing next to zero
U32 = 2.0**-24

# Roundings of a logit, in u * logit_mass. One chain of fused multiply-adds over head_dim is off by 0.33 on
# average and by 3.1 at worst in 6000 rows (partial sums wander above the final one). Scale, bias and cap add
# some.
LOGIT = 8.0
ARITHMETIC = 16.0  # exp, sum over keys, division, scale, merge of splits, in u * out_mass
LSE_ARITHMETIC = 4.0  # log2 and the final sum, in u * (2 + |lse|)
WEIGHT_SIGMAS = 2.5  # see 3 above


def _finite(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isinf(), torch.zeros_like(x), x)


def attention(ref: Reference, dtypes: DTypes, rope_position: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Absolute tolerance of each element of out and lse; `rope_position` is the largest one, 0 without."""
    logit_error = U32 * (LOGIT + rope_position) * ref.logit_mass
    weight_rounding = 0.0 if dtypes.q is DType.FP32 else WEIGHT_SIGMAS * UNIT[dtypes.q]
    out = (
        UNIT[dtypes.o] * ref.out.abs()
        + (2.0 * logit_error[..., None] + ARITHMETIC * U32) * ref.out_mass
        + weight_rounding * ref.out_rms
        + torch.where(ref.out_mass > 0, SUBNORMAL[dtypes.o], 0.0)
    )
    lse = LOG2_E * logit_error + LSE_ARITHMETIC * U32 * (2.0 + _finite(ref.lse).abs())
    return out, torch.where(ref.lse.isinf(), torch.zeros_like(lse), lse)


def merge(ref: MergedState, dtype: DType) -> tuple[torch.Tensor, torch.Tensor]:
    """Absolute tolerance of a merged state: one rounding of v, fp32 weights, an fp32 log2."""
    v = UNIT[dtype] * ref.v.abs() + ARITHMETIC * U32 * ref.v_mass
    v = v + torch.where(ref.v_mass > 0, SUBNORMAL[dtype], 0.0)
    s = LSE_ARITHMETIC * U32 * (2.0 + _finite(ref.s).abs())
    return v, torch.where(ref.s.isinf(), torch.zeros_like(s), s)


def plain_sum(out: torch.Tensor, mass: torch.Tensor, dtype: DType, terms: int) -> torch.Tensor:
    """Absolute tolerance of a sum of `terms` values: fp32 to the end, then one rounding."""
    return UNIT[dtype] * out.abs() + terms * U32 * mass + torch.where(mass > 0, SUBNORMAL[dtype], 0.0)


def largest_excess(actual: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> tuple[float, str]:
    """Worst error as a multiple of what is allowed, and where. Above 1 is wrong; NaN counts as infinite."""
    if actual.shape != expected.shape:
        return float("inf"), f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if actual.numel() == 0:
        return 0.0, ""
    got = actual.detach().to("cpu", torch.float64)
    error = torch.where(got == expected, 0.0, (got - expected).abs())  # equal infinities are no error
    ratio = torch.where(error == 0, 0.0, error / allowed).nan_to_num(nan=float("inf"), posinf=float("inf"))
    flat = int(ratio.argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(flat), ratio.shape)]
    text = f"at {place}: got {got.flatten()[flat]:.9g}, expected {expected.flatten()[flat]:.9g}"
    return float(ratio.max()), f"{text}, allowed {allowed.flatten()[flat]:.3g}"

"""The tiny attention problems on which a library is tried, and their answers in fp64 from the definition.

Lengths cross AITER's tiles of 128 rows and keys, the 512 keys from which a soft cap was once wrong, and a
page. Logits have a standard deviation of 4, so a soft cap of 5, a window of 31 or a mask that is left out
changes results by several times 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from arch_caps import MaskKind
from rocade._mask import Visibility
from rocade_kernels.aiter.names import V3, VariantKey

QO_HEADS, KV_HEADS = 4, 2
LENGTHS = ((37, 300), (1, 64), (130, 577))  # (queries, keys) of a request; the last alone where it is dense
SHARPNESS = 4.0
SOFT_CAP = 5.0
WINDOW = 31
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8}  # largest relative error of one rounding
# What explains an error: the result is rounded, and so is each softmax weight (also towards zero: twice as
# much); exp2 and tanh are approximations of the hardware.
ROUNDINGS = 2.0
WEIGHT_SIGMAS = 5.0
ARITHMETIC = 2e-3
LSE_LIMIT = 1e-2


class Mask(NamedTuple):
    """One mask to try."""

    causal: bool
    window_left: int  # -1: none

    def __str__(self) -> str:
        window = f"window {self.window_left}" if self.window_left >= 0 else ""
        return " and ".join(filter(None, ("causal" if self.causal else "", window))) or "no mask"


def masks(key: VariantKey) -> tuple[Mask, ...]:
    """The masks that a library serves. Hand-written kernels know no window."""
    if not key.needs_mask:
        return (Mask(False, -1),)
    if key.family in V3:
        return (Mask(True, -1),)
    return (Mask(True, -1), Mask(True, WINDOW), Mask(False, WINDOW))


@dataclass(frozen=True, slots=True)
class Rows:
    """Tensors of one problem in the library's dtype, on the CPU: tokens of all requests one after another."""

    lengths: tuple[tuple[int, int], ...]
    q: torch.Tensor  # [nnz, Hq, D]
    k: torch.Tensor  # [kv tokens, Hkv, D]
    v: torch.Tensor
    scale: float
    soft_cap: float  # 0: none


class Answer(NamedTuple):
    """What a library must compute, in fp64, and how far it may be off."""

    out: torch.Tensor  # [nnz, Hq, D]
    lse: torch.Tensor  # [Hq, nnz], natural logarithm
    limit: torch.Tensor  # of each element of out


def rows(key: VariantKey, head_dim: int, lengths: tuple[tuple[int, int], ...]) -> Rows:
    """The problem for a library: the same each time."""
    source = torch.Generator(device="cpu").manual_seed(20)

    def normal(tokens: int, heads: int, factor: float = 1.0) -> torch.Tensor:
        made = torch.randn(tokens, heads, head_dim, generator=source, device="cpu")
        return (made * factor).to(DTYPES[key.dtype])

    queries, keys = (sum(pair[side] for pair in lengths) for side in (0, 1))
    return Rows(
        lengths,
        normal(queries, QO_HEADS, SHARPNESS),
        normal(keys, KV_HEADS),
        normal(keys, KV_HEADS),
        head_dim**-0.5,
        SOFT_CAP if key.has_logits_cap else 0.0,
    )


def answer(given: Rows, mask: Mask, dtype: str) -> Answer:
    """Attention of each request by itself, from the definition."""
    parts, q_first, kv_first = [], 0, 0
    for q_len, kv_len in given.lengths:
        q = given.q[q_first : q_first + q_len]
        kv = slice(kv_first, kv_first + kv_len)
        parts.append(_one(q, given.k[kv], given.v[kv], given, mask))
        q_first, kv_first = q_first + q_len, kv_first + kv_len
    out, lse, spread = (
        torch.cat(part, axis) for part, axis in zip(zip(*parts, strict=True), (0, 1, 0), strict=True)
    )
    limit = UNIT[dtype] * (ROUNDINGS * out.abs() + WEIGHT_SIGMAS * spread) + ARITHMETIC
    return Answer(out, lse, limit)


def _one(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: Rows, mask: Mask
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Out `[Lq, Hq, D]`, LSE `[Hq, Lq]`, and the root of the sum of squares of the terms of out."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, 0) for x in (k, v))
    logits = q @ k.transpose(1, 2) * given.scale
    if given.soft_cap:
        logits = given.soft_cap * torch.tanh(logits / given.soft_cap)
    keys = torch.arange(k.shape[1], device="cpu")
    queries = torch.arange(q.shape[1], device="cpu") + k.shape[1] - q.shape[1]
    kind = MaskKind.CAUSAL if mask.causal else MaskKind.NONE
    seen = Visibility(kind, mask.window_left).visible(queries, keys)
    if seen is not None:
        logits = logits.masked_fill(~seen, -torch.inf)
    lse = logits.logsumexp(-1)
    weights = (logits - lse[..., None]).exp()
    spread = (weights.square() @ v.square()).sqrt()
    return (weights @ v).transpose(0, 1), lse, spread.transpose(0, 1)


def verdict(found: torch.Tensor, lse: torch.Tensor | None, right: Answer) -> str:
    """What is wrong with results, as `out` and `lse` of an answer; empty when nothing is."""
    wrong = []
    error = (found.double() - right.out).abs()
    bad = ~(error <= right.limit)  # also true of a NaN
    if bad.any():
        worst = error.nan_to_num(torch.inf).max()
        wrong.append(
            f"{int(bad.sum())} of {bad.numel()} elements of the output are off, the worst by {worst:.3g}"
        )
    if lse is not None and not bool(((lse - right.lse).abs() <= LSE_LIMIT).all()):
        worst = (lse - right.lse).abs().nan_to_num(torch.inf).max()
        wrong.append(f"the LSE is off by up to {worst:.3g}")
    return ", ".join(wrong)

"""The one guarded way to PyTorch's fused CPU attention, the only CPU operator that returns log-sum-exps.

What the guard is for (torch 2.13): no rows or no keys end the process (SIGFPE); a last stride other than 1,
or a head count that does not divide, give garbage without a word; `is_causal` aligns the first row with the
first key, not the last with the last. In half precision it is no faster (fp16: half as fast), and its
log-sum-exp is not exact to fp32 (a cheaper exponential): so it always gets fp32.

Letters: M query rows, n keys, Hq and Hkv heads, G = Hq / Hkv, D head dim.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from arch_caps import DType, MaskKind, PosEncoding, Request

_LOG2_E = math.log2(math.e)
_LEAF_ROWS = (
    256  # causal squares up to this are one call: with smaller ones, calls and merges cost what they save
)


def supports(request: Request) -> bool:
    """Whether `attend` can compute `request` from gathered keys: no rule but causal, and one head dim."""
    return (
        request.mask is not MaskKind.CUSTOM
        and request.window_left < 0
        and request.logits_soft_cap == 0.0
        and request.pos_encoding is PosEncoding.NONE
        and request.head_dim_qk == request.head_dim_vo
        and not (request.q_dtype.is_fp8 or request.kv_dtype.is_fp8)
        and request.o_dtype in (DType.FP32, DType.FP16, DType.BF16)
    )


@torch.no_grad()
def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    causal: bool,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Attention of one request's rows to its keys, written into `out` and `lse`.

    Causal is bottom-right: row i sees key j when j <= i + n - M. A row without keys gets (0, -inf), so M = 0,
    n = 0 and M > n are all allowed. With n >= 2 M, K and V are read once per KV head. Half-precision
    inputs are copied to fp32 whole: for long ranges hand in tiles of keys (2048 suit the caches) with
    `causal=False`, and merge. Threads share (head, 32 to 256 rows) pieces of the work.

    Args:
        q: `[M, Hq, D]`, any float dtype and strides; fp32 whose last stride is 1 is not copied.
        k: `[n, Hkv, D]`, likewise; `Hq` must be a multiple of `Hkv`.
        v: `[n, Hkv, D]`, likewise.
        scale: Multiplies q k, before the softmax.
        causal: Whether row i sees only keys up to its own position.
        out: `[M, Hq, D]`, any float dtype and strides. Must not overlap the inputs.
        lse: fp32 `[M, Hq]`, any strides, log2.

    Raises:
        ValueError: Shapes do not fit each other, or a tensor is not on the CPU.
    """
    _check(q, k, v, out, lse)
    rows, keys = q.shape[0], k.shape[0]
    blind = rows if keys == 0 else max(rows - keys, 0) if causal else 0
    if blind:
        out[:blind] = 0.0
        lse[:blind] = float("-inf")
        q, out, lse = q[blind:], out[blind:], lse[blind:]
    if blind == rows:
        return
    whole = not causal or q.shape[0] == keys <= _LEAF_ROWS  # one call does it, so nothing is merged
    q, k, v = (_prepared(x) for x in (q, k, v))
    if whole:
        _State(out, lse).set(_one_call(q, k, v, scale, causal=causal))
        return
    exact = out if out.dtype == torch.float32 else torch.empty(q.shape)
    _bottom_right(q, k, v, scale, _State(exact, lse))
    if exact is not out:
        out.copy_(exact)


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor) -> None:
    """The operator checks too little of this itself."""
    rows, heads, dim = q.shape
    if k.shape != v.shape or k.shape[2] != dim:
        raise ValueError(f"k and v must be [n, Hkv, {dim}], got {list(k.shape)} and {list(v.shape)}")
    if k.shape[1] == 0 or heads % k.shape[1]:
        raise ValueError(f"q has {heads} heads, which is no multiple of the {k.shape[1]} of k")
    if out.shape != q.shape or lse.shape != q.shape[:2] or lse.dtype != torch.float32:
        raise ValueError(f"out must be {list(q.shape)} and lse fp32 [{rows}, {heads}]")
    if any(x.device.type != "cpu" for x in (q, k, v, out, lse)):
        raise ValueError("the fused CPU operator needs all tensors on the CPU")


def _prepared(x: torch.Tensor) -> torch.Tensor:
    x = x.float()
    return x if x.stride(-1) == 1 else x.contiguous()


class _Part(NamedTuple):
    """A result of the operator: out `[M, Hq, D]` or `[M, Hkv, G, D]`; natural log-sum-exp, without D."""

    out: torch.Tensor
    ln_sum: torch.Tensor


class _State(NamedTuple):
    """Where results go: out `[M, Hq, D]` and log2-sum-exp `[M, Hq]`. No row is without keys."""

    out: torch.Tensor
    lse: torch.Tensor

    def rows(self, part: slice) -> _State:
        return _State(self.out[part], self.lse[part])

    def set(self, part: _Part) -> None:
        self.out.view(part.out.shape).copy_(part.out)
        torch.mul(part.ln_sum, _LOG2_E, out=self.lse.view(part.ln_sum.shape))

    def merge(self, part: _Part) -> None:
        """Merge a second range of keys into this one, in place; `out` is fp32."""
        out, lse = self.out.view(part.out.shape), self.lse.view(part.ln_sum.shape)
        new_lse = part.ln_sum * _LOG2_E
        top = torch.maximum(lse, new_lse)
        weight, new_weight = torch.exp2(lse - top), torch.exp2(new_lse - top)
        total = weight + new_weight
        out.mul_((weight / total)[..., None]).addcmul_(part.out, (new_weight / total)[..., None])
        torch.add(top, total.log2_(), out=lse)


def _bottom_right(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, state: _State) -> None:
    """Causal with M <= n: the first n - M keys are seen by all rows, the rest is a square."""
    common = k.shape[0] - q.shape[0]
    _square(q, k[common:], v[common:], scale, state)
    if common:
        state.merge(_one_call(q, k[:common], v[:common], scale, causal=False))


def _square(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, state: _State) -> None:
    """Causal with M = n. Halved until small: the operator itself skips little of the hidden half."""
    rows = q.shape[0]
    if rows <= _LEAF_ROWS:
        state.set(_one_call(q, k, v, scale, causal=True))
        return
    half = rows // 2
    upper, lower = slice(None, half), slice(half, None)
    _square(q[upper], k[upper], v[upper], scale, state.rows(upper))
    _square(q[lower], k[lower], v[lower], scale, state.rows(lower))
    state.rows(lower).merge(_one_call(q[lower], k[upper], v[upper], scale, causal=False))


def _one_call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, *, causal: bool) -> _Part:
    """The operator on M, n > 0. Causal needs M = n."""
    rows, heads, dim = q.shape
    kv_heads = k.shape[1]
    if causal or k.shape[0] < 2 * rows or heads == kv_heads:  # else moving q costs less than it saves
        return _call(q, k, v, scale, causal)
    # Every row sees every key, so a KV head's query heads can be rows of it: K and V are read once.
    split = rows, heads // kv_heads, kv_heads
    packed = q.reshape(rows, kv_heads, -1, dim).transpose(1, 2).reshape(-1, kv_heads, dim)
    out, ln_sum = _call(packed, k, v, scale, causal=False)
    return _Part(out.view(*split, dim).transpose(1, 2), ln_sum.view(split).transpose(1, 2))


def _call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> _Part:
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    out, ln_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, scale=scale
    )
    return _Part(out[0].transpose(0, 1), ln_sum[0].t())

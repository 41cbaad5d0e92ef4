"""`single_prefill_with_kv_cache`: attention of one request's query tokens over dense keys and values."""

from __future__ import annotations

import functools
from typing import Any, Literal, overload

import torch

from arch_caps import Op
from rocade import _ops, _single
from rocade._arguments import refuse_run
from rocade._dtypes import dtype_of, torch_dtype
from rocade._request import DTypeLike, Scale
from rocade._wrapper import Results

Tensor = torch.Tensor


@overload
def single_prefill_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale_q: Scale = None,
    scale_k: Scale = None,
    scale_v: Scale = None,
    o_dtype: DTypeLike | None = None,
    custom_mask: Tensor | None = None,
    packed_custom_mask: Tensor | None = None,
    causal: bool = False,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    backend: str = "auto",
    return_lse: Literal[False] = False,
    kv_cache_sf: Tensor | None = None,
    k_scale: Scale = None,
    v_scale: Scale = None,
) -> Tensor: ...


@overload
def single_prefill_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale_q: Scale = None,
    scale_k: Scale = None,
    scale_v: Scale = None,
    o_dtype: DTypeLike | None = None,
    custom_mask: Tensor | None = None,
    packed_custom_mask: Tensor | None = None,
    causal: bool = False,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    backend: str = "auto",
    *,
    return_lse: Literal[True],
    kv_cache_sf: Tensor | None = None,
    k_scale: Scale = None,
    v_scale: Scale = None,
) -> tuple[Tensor, Tensor]: ...


def single_prefill_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale_q: Scale = None,
    scale_k: Scale = None,
    scale_v: Scale = None,
    o_dtype: DTypeLike | None = None,
    custom_mask: Tensor | None = None,
    packed_custom_mask: Tensor | None = None,
    causal: bool = False,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    backend: str = "auto",
    return_lse: bool = False,
    kv_cache_sf: Tensor | None = None,
    k_scale: Scale = None,
    v_scale: Scale = None,
) -> Results:
    """Attention of one request. Plans and runs in one call; use a batch wrapper to plan once for many layers.

    Args:
        q: `[L, Hq, head_dim_qk]`.
        k: `[n, Hkv, head_dim_qk]`, or HND `[Hkv, n, head_dim_qk]`.
        v: `[n, Hkv, head_dim_vo]`, or HND.
        scale_q: factor on the logits, a number or a one-element tensor; a scale per head is refused.
        scale_k: the same.
        scale_v: factor on the result.
        o_dtype: dtype of the result, None for that of q.
        custom_mask: bool `[L, n]`, True is visible; overrides `causal`.
        packed_custom_mask: the same as little-endian bits `[ceil(L * n / 8)]`; wins over the other.
        causal: hide keys right of the diagonal that ends at the last query and last key.
        kv_layout: "NHD" or "HND".
        pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI", applied inside.
        use_fp16_qk_reduction: refused.
        sm_scale: factor on q.k, None for 1/sqrt(head_dim_qk).
        window_left: visible tokens left of the diagonal, negative for all.
        logits_soft_cap: cap * tanh(logit / cap); None or 0 for none.
        rope_scale: positions are divided by it; None for 1.
        rope_theta: base of the rotary frequencies; None for 1e4.
        backend: "auto" (also spelled "fa2" or "native"), or the name of one backend.
        return_lse: return `(out, lse)`; the LSE is log2 of the sum of exp of the scaled logits.
        kv_cache_sf: refused.
        k_scale: factor on the logits, as `scale_k`.
        v_scale: factor on the result, as `scale_v`.

    Returns:
        `[L, Hq, head_dim_vo]`, with `return_lse` also fp32 `[L, Hq]`. A row that sees no key is 0 and -inf.

    Raises:
        ValueError: an argument is malformed.
        ArchCapabilityError: no backend accepts the request; lists every reason.
    """
    refuse_run(use_fp16_qk_reduction=use_fp16_qk_reduction, kv_cache_sf=kv_cache_sf)
    qk_factor, qk_scales = _ops.split_scales(
        (("scale_q", scale_q), ("scale_k", scale_k), ("k_scale", k_scale))
    )
    v_factor, v_scales = _ops.split_scales((("scale_v", scale_v), ("v_scale", v_scale)))
    scales = (qk_factor, v_factor, qk_scales, v_scales)
    numbers = (sm_scale, logits_soft_cap, rope_scale, rope_theta)
    flags = (causal, pos_encoding_mode, window_left, *numbers, _torch_dtype(o_dtype))
    given = (q, k, v, kv_layout, backend, custom_mask, packed_custom_mask, *scales, *flags)
    if torch.compiler.is_compiling():
        op = torch.ops.rocade.single_prefill_lse if return_lse else torch.ops.rocade.single_prefill
        traced: Results = op(*given)
        return traced
    out, lse = _run(*given, return_lse=return_lse)
    return out if lse is None else (out, lse)


@functools.wraps(single_prefill_with_kv_cache)
def single_prefill_with_kv_cache_return_lse(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """`single_prefill_with_kv_cache` with `return_lse=True`."""
    result: tuple[Tensor, Tensor] = single_prefill_with_kv_cache(*args, **{**kwargs, "return_lse": True})
    return result


def _torch_dtype(o_dtype: DTypeLike | None) -> torch.dtype | None:
    return None if o_dtype is None else torch_dtype(dtype_of("o_dtype", o_dtype))


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_layout: str,
    backend: str,
    custom_mask: Tensor | None,
    packed_custom_mask: Tensor | None,
    qk_factor: float,
    v_factor: float,
    qk_scales: list[Tensor],
    v_scales: list[Tensor],
    *flags: Any,
    return_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """The call with its arguments in the order of the op's schema; `flags` are those of `_FLAGS`."""
    factors = _ops.product(qk_factor, qk_scales), _ops.product(v_factor, v_scales)
    given = None
    if custom_mask is None and packed_custom_mask is None:
        given = _single.given(Op.SINGLE_PREFILL, q, k, v, (kv_layout, backend), flags, return_lse=return_lse)
    if given and (made := _single.repeated(given, factors)):
        return made
    kv = _single.dense(k, v, kv_layout)
    mask = _single.mask_of(custom_mask, packed_custom_mask, q, kv)
    named = dict(zip(_FLAGS, flags, strict=True))
    request = _single.request_of(Op.SINGLE_PREFILL, q, kv, kv_layout, masked=mask is not None, **named)
    return _single.attend(request, q, kv, mask, backend, factors, return_lse=return_lse, given=given)


def _op(*given: Any) -> Tensor:
    return _run(*given, return_lse=False)[0]


def _op_lse(*given: Any) -> tuple[Tensor, Tensor | None]:
    return _run(*given, return_lse=True)


def _fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> Tensor:
    return q.new_empty((q.shape[0], q.shape[1], v.shape[2]), dtype=given[-1] or q.dtype)


_FLAGS = (
    "causal",
    "pos_encoding_mode",
    "window_left",
    "sm_scale",
    "logits_soft_cap",
    "rope_scale",
    "rope_theta",
    "o_dtype",
)
_GIVEN = (
    "Tensor q, Tensor k, Tensor v, str kv_layout, str backend, Tensor? custom_mask, "
    "Tensor? packed_custom_mask, float qk_factor, float v_factor, Tensor[] qk_scales, Tensor[] v_scales, "
    "bool causal, str pos_encoding_mode, int window_left, float? sm_scale, float? logits_soft_cap, "
    "float? rope_scale, float? rope_theta, ScalarType? o_dtype"
)
_ops.define(f"single_prefill({_GIVEN}) -> Tensor", _op, _fake)
_ops.define(
    f"single_prefill_lse({_GIVEN}) -> (Tensor, Tensor)",
    _op_lse,
    lambda q, *given: (_fake(q, *given), q.new_empty(q.shape[:2], dtype=torch.float32)),
)

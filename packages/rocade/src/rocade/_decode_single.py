"""`single_decode_with_kv_cache`: one query token over dense keys and values."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch

from arch_caps import Op
from rocade import _ops, _single
from rocade._request import Scale
from rocade._wrapper import Results

Tensor = torch.Tensor


@overload
def single_decode_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: Scale = None,
    k_scale: Scale = None,
    v_scale: Scale = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    return_lse: Literal[False] = False,
    backend: str = "auto",
) -> Tensor: ...


@overload
def single_decode_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: Scale = None,
    k_scale: Scale = None,
    v_scale: Scale = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    *,
    return_lse: Literal[True],
    backend: str = "auto",
) -> tuple[Tensor, Tensor]: ...


def single_decode_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: Scale = None,
    k_scale: Scale = None,
    v_scale: Scale = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    return_lse: bool = False,
    backend: str = "auto",
) -> Results:
    """Attention of one query token, which stands on the last key.

    Args:
        q: `[Hq, head_dim_qk]`.
        k: `[n, Hkv, head_dim_qk]`, or HND `[Hkv, n, head_dim_qk]`.
        v: `[n, Hkv, head_dim_vo]`, or HND.
        kv_layout: "NHD" or "HND".
        pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI", applied inside.
        use_tensor_cores: without effect on results.
        q_scale: factor on the logits, a number or a one-element tensor.
        k_scale: the same.
        v_scale: factor on the result.
        window_left: visible tokens left of the last key, negative for all.
        logits_soft_cap: cap * tanh(logit / cap); None or 0 for none.
        sm_scale: factor on q.k, None for 1/sqrt(head_dim_qk).
        rope_scale: positions are divided by it; None for 1.
        rope_theta: base of the rotary frequencies; None for 1e4.
        return_lse: return `(out, lse)`; the LSE is log2 of the sum of exp of the scaled logits.
        backend: "auto" (also spelled "fa2" or "native"), or the name of one backend.

    Returns:
        `[Hq, head_dim_vo]`, with `return_lse` also fp32 `[Hq]`.

    Raises:
        ValueError: an argument is malformed.
        ArchCapabilityError: no backend accepts the request; lists every reason.
    """
    _single.query("q", q, 2, "[heads, head_dim]")
    qk_factor, qk_scales = _ops.split_scales((("q_scale", q_scale), ("k_scale", k_scale)))
    v_factor, v_scales = _ops.split_scales((("v_scale", v_scale),))
    scales = (qk_factor, v_factor, qk_scales, v_scales)
    flags = (pos_encoding_mode, window_left, sm_scale, logits_soft_cap, rope_scale, rope_theta)
    given = (q, k, v, kv_layout, backend, *scales, *flags)
    if torch.compiler.is_compiling():
        op = torch.ops.rocade.single_decode_lse if return_lse else torch.ops.rocade.single_decode
        traced: Results = op(*given)
        return traced
    out, lse = _run(*given, return_lse=return_lse)
    return out if lse is None else (out, lse)


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_layout: str,
    backend: str,
    qk_factor: float,
    v_factor: float,
    qk_scales: list[Tensor],
    v_scales: list[Tensor],
    *flags: Any,
    return_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """The call with its arguments in the order of the op's schema; `flags` are those of `_FLAGS`."""
    factors = _ops.product(qk_factor, qk_scales), _ops.product(v_factor, v_scales)
    given = _single.given(Op.SINGLE_DECODE, q, k, v, (kv_layout, backend), flags, return_lse=return_lse)
    if given and (made := _single.repeated(given, factors)):
        return made
    kv = _single.dense(k, v, kv_layout)
    row = q.unsqueeze(0)
    named = dict(zip(_FLAGS, flags, strict=True))
    request = _single.request_of(Op.SINGLE_DECODE, row, kv, kv_layout, masked=False, **named)
    return _single.attend(request, row, kv, None, backend, factors, return_lse=return_lse, given=given)


def _op(*given: Any) -> Tensor:
    return _run(*given, return_lse=False)[0]


def _op_lse(*given: Any) -> tuple[Tensor, Tensor | None]:
    return _run(*given, return_lse=True)


def _fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> Tensor:
    return q.new_empty((q.shape[0], v.shape[2]))


_FLAGS = ("pos_encoding_mode", "window_left", "sm_scale", "logits_soft_cap", "rope_scale", "rope_theta")
_GIVEN = (
    "Tensor q, Tensor k, Tensor v, str kv_layout, str backend, float qk_factor, float v_factor, "
    "Tensor[] qk_scales, Tensor[] v_scales, str pos_encoding_mode, int window_left, float? sm_scale, "
    "float? logits_soft_cap, float? rope_scale, float? rope_theta"
)
_ops.define(f"single_decode({_GIVEN}) -> Tensor", _op, _fake)
_ops.define(
    f"single_decode_lse({_GIVEN}) -> (Tensor, Tensor)",
    _op_lse,
    lambda q, *given: (_fake(q, *given), q.new_empty(q.shape[:1], dtype=torch.float32)),
)

"""From FlashInfer's arguments to a `Request`: the only place where a default is filled in."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any, SupportsFloat, SupportsIndex

import torch

from arch_caps import DType, Layout, MaskKind, Op, PosEncoding, Request
from rocade._dtypes import dtype_of
from rocade._errors import invalid

DTypeLike = torch.dtype | str
Scale = float | torch.Tensor | None

_FLOATS = frozenset((DType.FP32, DType.FP16, DType.BF16))
INT32_MAX = 2**31 - 1
_LARGEST = torch.finfo(torch.float32).max
_LARGEST_CAP = 2.0**126  # fp32 holds it and, in full precision, its inverse, which logits are multiplied with
_POS_ENCODINGS = {mode.value: mode for mode in PosEncoding}


def attention(
    op: Op,
    *,
    num_qo_heads: SupportsIndex,
    num_kv_heads: SupportsIndex,
    head_dim_qk: SupportsIndex,
    head_dim_vo: SupportsIndex | None = None,
    q_dtype: DTypeLike,
    kv_dtype: DTypeLike | None = None,
    o_dtype: DTypeLike | None = None,
    kv_layout: Layout = Layout.NHD,
    page_size: SupportsIndex = 0,
    causal: bool = False,
    custom_mask: bool = False,
    pos_encoding_mode: str = "NONE",
    sm_scale: SupportsFloat | None = None,
    window_left: SupportsIndex = -1,
    logits_soft_cap: SupportsFloat | None = None,
    rope_scale: SupportsFloat | None = None,
    rope_theta: SupportsFloat | None = None,
    num_levels: int = 1,
    max_qo_len: int | None = None,
    max_kv_len: int | None = None,
    graph: bool = False,
    fixed_split_size: SupportsIndex | None = None,
    disable_split_kv: bool = False,
) -> Request:
    """The request of one attention call. `page_size` 0 means dense K and V; `fixed_split_size` counts pages.

    Raises ValueError, naming the argument, for values that no backend could give a meaning.
    """
    qo_heads, kv_heads = _heads(num_qo_heads, num_kv_heads)
    d_qk = positive("head_dim_qk", head_dim_qk)
    q = float_dtype("q_data_type", q_dtype)
    pages = _page_size(page_size)
    pos = pos_encoding(pos_encoding_mode, d_qk)
    return Request(
        op=op,
        q_dtype=q,
        kv_dtype=q if kv_dtype is None else dtype_of("kv_data_type", kv_dtype),
        o_dtype=q if o_dtype is None else float_dtype("o_data_type", o_dtype),
        num_qo_heads=qo_heads,
        num_kv_heads=kv_heads,
        head_dim_qk=d_qk,
        head_dim_vo=d_qk if head_dim_vo is None else positive("head_dim_vo", head_dim_vo),
        kv_layout=kv_layout,
        page_size=pages,
        mask=mask_kind(causal=causal, custom_mask=custom_mask),
        window_left=window(window_left),
        logits_soft_cap=soft_cap(logits_soft_cap),
        pos_encoding=pos,
        sm_scale=softmax_scale(sm_scale, d_qk),
        rope_scale=_rope("rope_scale", rope_scale, 1.0),
        rope_theta=_rope("rope_theta", rope_theta, 1e4),
        num_levels=num_levels,
        max_qo_len=max_qo_len,
        max_kv_len=max_kv_len,
        graph=graph,
        fixed_split_size=_split(fixed_split_size, pages),
        disable_split_kv=bool(disable_split_kv),
    )


# Requests by the arguments that they were made of, for plans that differ in lengths alone. Only of arguments
# whose values cannot change; types count, since 1, 1.0 and True are equal and are not refused alike.
_made: dict[tuple[object, ...], tuple[Request, dict[str, Any]]] = {}
_MADE = 1024
_PLAIN = frozenset((bool, int, float, str, type(None), torch.dtype, Op, Layout))


def remembered(given: tuple[Any, ...], lengths: tuple[int, int], make: Callable[[], Request]) -> Request:
    """What `make()` returns, which depends on `given` and on the longest query and sequence alone."""
    kinds = tuple(map(type, given))
    key = (given, kinds)
    try:
        known = _made.get(key)
    except TypeError:  # an argument that cannot be compared
        return make()
    if known is None:
        made = make()
        if _PLAIN.issuperset(kinds):
            if len(_made) >= _MADE:
                _made.clear()
            _made[key] = made, {name: getattr(made, name) for name in _FIELDS}
        return made
    request, fields = known
    if (request.max_qo_len, request.max_kv_len) == lengths:
        return request
    return Request(**fields, max_qo_len=lengths[0], max_kv_len=lengths[1])


_FIELDS = tuple(f.name for f in dataclasses.fields(Request) if f.name not in ("max_qo_len", "max_kv_len"))


def states(op: Op, *, dtype: torch.dtype, num_heads: int, head_dim: int) -> Request:
    """The request of a merge or sum of attention states `v [..., num_heads, head_dim]`."""
    kind = float_dtype("v", dtype)
    return Request(
        op=op,
        q_dtype=kind,
        kv_dtype=kind,
        o_dtype=kind,
        num_qo_heads=positive("num_heads", num_heads),
        num_kv_heads=num_heads,
        head_dim_qk=positive("head_dim", head_dim),
        head_dim_vo=head_dim,
    )


def append(
    *,
    key_dtype: torch.dtype,
    cache_dtype: torch.dtype,
    num_kv_heads: int,
    head_dim_qk: int,
    head_dim_vo: int,
    page_size: int,
    kv_layout: Layout,
) -> Request:
    """The request of writing keys and values into a paged cache."""
    return Request(
        op=Op.APPEND_PAGED_KV_CACHE,
        q_dtype=dtype_of("append_key", key_dtype),
        kv_dtype=dtype_of("paged_kv_cache", cache_dtype),
        o_dtype=dtype_of("paged_kv_cache", cache_dtype),
        num_qo_heads=positive("num_kv_heads", num_kv_heads),
        num_kv_heads=num_kv_heads,
        head_dim_qk=positive("head_dim", head_dim_qk),
        head_dim_vo=positive("head_dim", head_dim_vo),
        kv_layout=kv_layout,
        page_size=positive("page_size", page_size),
    )


def overridden(
    request: Request,
    *,
    causal: bool | None,
    pos_encoding_mode: str,
    window_left: SupportsIndex,
    logits_soft_cap: SupportsFloat | None,
    sm_scale: SupportsFloat | None,
    rope_scale: SupportsFloat | None,
    rope_theta: SupportsFloat | None,
) -> Request:
    """The request with the run-time arguments of FlashInfer's `forward()`, which replace what was planned.

    `causal` None (decode) and a custom mask leave the mask as planned.
    """
    keep = causal is None or request.mask is MaskKind.CUSTOM
    return dataclasses.replace(
        request,
        mask=request.mask if keep else mask_kind(causal=bool(causal), custom_mask=False),
        pos_encoding=pos_encoding(pos_encoding_mode, request.head_dim_qk),
        window_left=window(window_left),
        logits_soft_cap=soft_cap(logits_soft_cap),
        sm_scale=softmax_scale(sm_scale, request.head_dim_qk),
        rope_scale=_rope("rope_scale", rope_scale, 1.0),
        rope_theta=_rope("rope_theta", rope_theta, 1e4),
    )


def changed(request: Request, field: str, value: object) -> Request:
    """The request with one value replaced that FlashInfer keeps on a wrapper; None means its default."""
    planned: dict[str, Any] = {
        "causal": None,
        "pos_encoding_mode": request.pos_encoding.value,
        "window_left": request.window_left,
        "logits_soft_cap": request.logits_soft_cap,
        "sm_scale": request.sm_scale,
        "rope_scale": request.rope_scale,
        "rope_theta": request.rope_theta,
    }
    return overridden(request, **{**planned, field: value})


def mask_kind(*, causal: bool, custom_mask: bool) -> MaskKind:
    """A custom mask overrides causal."""
    if custom_mask:
        return MaskKind.CUSTOM
    return MaskKind.CAUSAL if causal else MaskKind.NONE


def window(window_left: SupportsIndex) -> int:
    """Tokens visible to the left of the diagonal; every negative value means no limit, which is -1 here.

    So does one beyond what int32 holds, as no key lies farther left.
    """
    tokens = integer("window_left", window_left)
    return tokens if 0 <= tokens <= INT32_MAX else -1


def soft_cap(value: SupportsFloat | None) -> float:
    """The cap on logits; None and 0 mean none."""
    cap = 0.0 if value is None else number("logits_soft_cap", value)
    if cap != 0.0 and not 1.0 / _LARGEST_CAP <= cap <= _LARGEST_CAP:
        raise invalid("logits_soft_cap", cap, f"None, 0 or a positive number up to {_LARGEST_CAP:.3g}")
    return cap


def softmax_scale(value: SupportsFloat | None, head_dim_qk: int) -> float:
    """The factor on q.k; None means 1/sqrt(head_dim_qk)."""
    if value is None:
        return 1.0 / math.sqrt(head_dim_qk)
    scale = number("sm_scale", value)
    return _held_by_fp32("sm_scale", scale)


def scale(name: str, value: Scale) -> float:
    """A run-time scale (`q_scale`, `k_scale`, `v_scale`): a number or a one-element tensor; None means 1."""
    if value is None:
        return 1.0
    factor = value if type(value) is float else number(name, value)
    return _held_by_fp32(name, factor)


def pos_encoding(mode: object, head_dim_qk: int) -> PosEncoding:
    """The position encoding called `mode`; rotary pairs need an even head dimension."""
    found = _POS_ENCODINGS.get(mode) if isinstance(mode, str) else None
    if found is None:
        raise invalid("pos_encoding_mode", repr(mode), "one of " + ", ".join(map(repr, _POS_ENCODINGS)))
    if found is PosEncoding.ROPE_LLAMA and head_dim_qk % 2:
        raise invalid("head_dim_qk", head_dim_qk, "an even number with pos_encoding_mode 'ROPE_LLAMA'")
    return found


def float_dtype(name: str, value: DTypeLike) -> DType:
    """A dtype that queries and outputs may have."""
    dtype = dtype_of(name, value)
    if dtype not in _FLOATS:
        raise invalid(name, value, "float16, bfloat16 or float32 (8-bit floats are for the KV cache)")
    return dtype


def integer(name: str, value: SupportsIndex) -> int:
    """A Python int from anything that is one."""
    if type(value) is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise invalid(name, repr(value), "an integer") from None


def positive(name: str, value: SupportsIndex) -> int:
    """An integer of at least 1 that int32 holds."""
    number = integer(name, value)
    if not 1 <= number <= INT32_MAX:
        raise invalid(name, number, "at least 1" if number < 1 else f"at most {INT32_MAX}")
    return number


def number(name: str, value: SupportsFloat | str) -> float:
    """A Python float from a number or a one-element tensor."""
    if isinstance(value, torch.Tensor):
        one_element(name, value)
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise invalid(name, repr(value), "a number or a one-element tensor")


def one_element(name: str, value: torch.Tensor) -> torch.Tensor:
    """A tensor that stands for a number; scales per head or per token are not supported."""
    if value.numel() != 1:
        raise invalid(name, f"a tensor of shape {list(value.shape)}", "a number or a one-element tensor")
    return value


def _held_by_fp32(name: str, value: float) -> float:
    """A number that arithmetic in fp32 may use: beyond its range it would turn to infinity there."""
    if not abs(value) <= _LARGEST:
        raise invalid(name, value, "a finite number that fp32 holds")
    return value


def _heads(num_qo_heads: SupportsIndex, num_kv_heads: SupportsIndex) -> tuple[int, int]:
    """Head counts, where each KV head serves the same number of query heads."""
    qo, kv = positive("num_qo_heads", num_qo_heads), positive("num_kv_heads", num_kv_heads)
    if qo % kv:
        raise invalid("num_qo_heads", qo, f"a multiple of num_kv_heads ({kv})")
    return qo, kv


def _page_size(value: SupportsIndex) -> int:
    size = integer("page_size", value)
    if not 0 <= size <= INT32_MAX:
        raise invalid("page_size", size, "at least 1" if size < 0 else f"at most {INT32_MAX}")
    return size


def _rope(name: str, value: SupportsFloat | None, default: float) -> float:
    factor = default if value is None else number(name, value)
    if not (math.isfinite(factor) and factor > 0.0):
        raise invalid(name, factor, "a positive number")
    return factor


def _split(pages: SupportsIndex | None, page_size: int) -> int | None:
    """KV tokens a split. FlashInfer counts pages, and -1 means none for it as None does."""
    if pages is None or integer("fixed_split_size", pages) == -1:
        return None
    return min(positive("fixed_split_size", pages) * max(page_size, 1), INT32_MAX)

"""Merging and summing attention states, below the public functions: checks, dispatch, one backend call.

A state is `v [n, H, D]` with its fp32 log2-sum-exp `s [n, H]`. Letters: n rows, S states a row, m rows of all
states together, H heads, D head dims. Each function writes into `out`, or into new tensors when it is None.
"""

from __future__ import annotations

import functools

import torch

from arch_caps import Op, Request
from rocade import _checks, _dispatch, _layout, _replay, _request
from rocade._errors import invalid
from rocade._run_checks import overlap
from rocade.backends._base import Backend

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


State = tuple[torch.Tensor, torch.Tensor]


def merge_state(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    mask: torch.Tensor | None,
    out: State | None,
    backend: str,
) -> State:
    """Merge states a and b row by row; rows whose `mask [n]` is 0 are those of a."""
    kind = ("merge_state", backend)
    if mask is None and out is None and (repeat := _replay.find(kind)) and _are_tensors(v_a, s_a):
        v_out, s_out = _empty(v_a), _empty(s_a)
        if repeat(v_a, s_a, v_b, s_b, v_out, s_out):
            return v_out, s_out
    given = s_a, s_b
    _check_v("v_a", v_a, 3)
    _check_like("v_b", v_b, v_a)
    s_a, s_b = _lse("s_a", s_a, v_a), _lse("s_b", s_b, v_a)
    if out is None:
        v_out, s_out = _empty(v_a), _empty(s_a)
    else:
        v_out, s_out = _checked_state(out, v_a, v_a.shape, (v_b, s_b), (v_a, s_a))
    if mask is not None:
        v_out.copy_(v_a)
        s_out.copy_(s_a)
        merge_state_in_place(v_out, s_out, v_b, s_b, mask, backend)
    elif _is_some(v_a):
        chosen = _backend(Op.MERGE_STATE, v_a, backend)
        chosen.merge_state(v_a, s_a, v_b, s_b, v_out, s_out)
        if out is None:
            _replay.learn(chosen, kind, (v_a, given[0], v_b, given[1], v_out, s_out))
    return v_out, s_out


def merge_state_in_place(
    v: torch.Tensor,
    s: torch.Tensor,
    v_other: torch.Tensor,
    s_other: torch.Tensor,
    mask: torch.Tensor | None,
    backend: str,
) -> None:
    """Merge the other state into `v`, `s`; rows whose `mask [n]` is 0 keep their value."""
    kind, tensors = ("merge_state_in_place", backend), (v, s, v_other, s_other)
    if mask is None and (repeat := _replay.find(kind)) and repeat(*tensors):
        return
    _check_v("v", v, 3)
    _check_like("v_other", v_other, v)
    s_other = _lse("s_other", s_other, v)
    _checked_state((v, s), v, v.shape, (v_other, s_other), names=("v", "s"))
    if mask is not None:
        mask = _row_mask(mask, v)
    if _is_some(v):
        chosen = _backend(Op.MERGE_STATE_IN_PLACE, v, backend)
        chosen.merge_state_in_place(v, s, v_other, s_other, mask)
        if mask is None:
            _replay.learn(chosen, kind, tensors)


def merge_states(v: torch.Tensor, s: torch.Tensor, out: State | None, backend: str) -> State:
    """Merge `v [n, S, H, D]`, `s [n, S, H]` over S."""
    kind, given = ("merge_states", backend), s
    if out is None and (repeat := _replay.find(kind)) and _are_tensors(v, s) and v.dim() == 4:
        n, _, heads, dim = v.shape
        v_out = v.new_empty_strided((n, heads, dim), (heads * dim, dim, 1))  # twice as fast as new_empty
        s_out = s.new_empty_strided((n, heads), (heads, 1))
        if repeat(v, s, v_out, s_out):
            return v_out, s_out
    _check_v("v", v, 4)
    s, shape = _lse("s", s, v), (v.shape[0], *v.shape[2:])
    v_out, s_out = _state_like(v, shape) if out is None else _checked_state(out, v, shape, (v, s))
    if _is_some(v_out):
        chosen = _backend(Op.MERGE_STATES, v, backend)
        chosen.merge_states(v, s, v_out, s_out)
        if out is None:
            _replay.learn(chosen, kind, (v, given, v_out, s_out))
    return v_out, s_out


def variable_length_merge_states(
    v: torch.Tensor, s: torch.Tensor, indptr: torch.Tensor, out: State | None, backend: str
) -> State:
    """Merge rows `indptr[i]:indptr[i + 1]` of `v [m, H, D]`, `s [m, H]` into row i."""
    _check_v("v", v, 3)
    s, indptr = _lse("s", s, v), _row_ranges(indptr, v)
    shape = (indptr.numel() - 1, *v.shape[1:])
    v_out, s_out = _state_like(v, shape) if out is None else _checked_state(out, v, shape, (v, s))
    if _is_some(v_out):
        chosen = _backend(Op.VARIABLE_LENGTH_MERGE_STATES, v, backend)
        chosen.variable_length_merge_states(v, s, indptr, v_out, s_out)
    return v_out, s_out


def attention_sum(v: torch.Tensor, out: torch.Tensor | None, backend: str) -> torch.Tensor:
    """Sum `v [n, S, H, D]` over S."""
    _check_v("v", v, 4)
    v_out = _result(out, v, (v.shape[0], *v.shape[2:]))
    if _is_some(v_out):
        _backend(Op.ATTENTION_SUM, v, backend).attention_sum(v, v_out)
    return v_out


def variable_length_attention_sum(
    v: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None, backend: str
) -> torch.Tensor:
    """Sum rows `indptr[i]:indptr[i + 1]` of `v [m, H, D]` into row i."""
    _check_v("v", v, 3)
    indptr = _row_ranges(indptr, v)
    v_out = _result(out, v, (indptr.numel() - 1, *v.shape[1:]))
    if _is_some(v_out):
        chosen = _backend(Op.VARIABLE_LENGTH_ATTENTION_SUM, v, backend)
        chosen.variable_length_attention_sum(v, indptr, v_out)
    return v_out


def _backend(op: Op, v: torch.Tensor, backend: str) -> Backend:
    """The backend for states of the shape and dtype of `v [..., H, D]`."""
    request = _request_of(op, v.dtype, v.shape[-2], v.shape[-1])
    return _dispatch.select(request, v.device, backend)


@functools.lru_cache(maxsize=1024)
def _request_of(op: Op, dtype: torch.dtype, num_heads: int, head_dim: int) -> Request:
    return _request.states(op, dtype=dtype, num_heads=num_heads, head_dim=head_dim)


def _describe(x: object) -> str:
    """What was given, for a message."""
    return f"{x.dtype} {list(x.shape)} on {x.device}" if isinstance(x, torch.Tensor) else type(x).__name__


def _check_v(name: str, v: object, dims: int) -> None:
    """Raise ValueError unless `v` is a float tensor `[..., H, D]` of `dims` dimensions."""
    if not isinstance(v, torch.Tensor) or v.dim() != dims:
        expected = "[n, heads, head_dim]" if dims == 3 else "[n, states, heads, head_dim]"
        raise invalid(name, _describe(v), f"a tensor {expected}")
    if v.dtype not in _FLOATS:
        raise invalid(name, v.dtype, "float32, float16 or bfloat16")
    _check_memory(name, v)


def _check_memory(name: str, v: torch.Tensor) -> None:
    """Raise ValueError unless kernels may read the memory of `v`. A few attributes tell in most calls."""
    if v.requires_grad:
        _layout.check_no_grad(name, v)
    if v.stride(-1) != 1 or v.is_neg():
        _layout.check_rows_contiguous(name, v)


def _check_like(name: str, v: torch.Tensor, like: torch.Tensor) -> None:
    """Raise ValueError unless `v` has the shape, dtype and device of the other state's `like`."""
    if getattr(v, "dtype", None) is like.dtype and v.shape == like.shape and v.device == like.device:
        _check_memory(name, v)
        return
    _check_v(name, v, like.dim())
    if v.shape != like.shape or v.dtype != like.dtype or v.device != like.device:
        raise invalid(name, _describe(v), f"{_describe(like)}, as the other state has")


def _lse(name: str, s: object, v: torch.Tensor) -> torch.Tensor:
    """The fp32 log2-sum-exp that belongs to `v [..., H, D]`; another float dtype is converted."""
    if not isinstance(s, torch.Tensor) or s.shape != v.shape[:-1] or s.device != v.device:
        raise invalid(name, _describe(s), f"torch.float32 {list(v.shape[:-1])} on {v.device}")
    if s.requires_grad:
        _layout.check_no_grad(name, s)
    if s.dtype is torch.float32:
        return s.resolve_neg()
    if not s.is_floating_point():
        raise invalid(name, s.dtype, "torch.float32")
    return s.resolve_neg().to(torch.float32)


def _is_some(v: torch.Tensor) -> bool:
    """Whether there is anything to compute. Heads of no dims are refused: no kernel would write their lse."""
    if v.numel():
        return True
    if not v.shape[-1]:
        raise invalid("head_dim", 0, "at least 1")
    return False


def _are_tensors(v: object, s: object) -> bool:
    """Whether results may be made like these, before any other check."""
    return isinstance(v, torch.Tensor) and isinstance(s, torch.Tensor)


def _empty(like: torch.Tensor) -> torch.Tensor:
    """A new, dense tensor of the shape and type of another; the fastest of torch's ways to make one."""
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def _state_like(v: torch.Tensor, shape: tuple[int, ...]) -> State:
    """A new, uninitialised state `v [shape]`, `s [shape[:-1]]`."""
    return v.new_empty(shape), v.new_empty(shape[:-1], dtype=torch.float32)


def _checked_state(
    out: object,
    like: torch.Tensor,
    shape: tuple[int, ...],
    others: State,
    itself: State | None = None,
    names: tuple[str, str] = ("out[0]", "out[1]"),
) -> State:
    """`out`, after ValueError unless it can be written: its v like the inputs, its s fp32.

    It shares no memory with the inputs `others`, and with `itself` only by being that state.
    """
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise invalid("out", type(out).__name__, "a (v, s) pair of tensors")
    v_out = _checked_result(names[0], out[0], like, shape)
    s_out = out[1]
    if not isinstance(s_out, torch.Tensor) or s_out.dtype is not torch.float32 or s_out.shape != shape[:-1]:
        expected = f"torch.float32 {list(shape[:-1])}, since it is written in place"
        raise invalid(names[1], _describe(s_out), expected)
    if s_out.device != like.device:
        raise invalid(names[1], f"device {s_out.device}", f"device {like.device}")
    _layout.check_writable(names[1], s_out)
    v_itself, s_itself = itself or (None, None)
    _check_apart(names[0], v_out, others[0], v_itself)
    _check_apart(names[1], s_out, others[1], s_itself)
    _check_apart(names[1], s_out, v_out)
    return v_out, s_out


def _result(out: object, v: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """`out` checked, or a new tensor of this shape."""
    if out is None:
        return v.new_empty(shape)
    checked = _checked_result("out", out, v, shape)
    _check_apart("out", checked, v)
    return checked


def _checked_result(name: str, out: object, like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """`out`, after ValueError unless it has this shape, and dtype and device of `like`."""
    if (
        not isinstance(out, torch.Tensor)
        or out.shape != shape
        or out.dtype != like.dtype
        or out.device != like.device
    ):
        raise invalid(name, _describe(out), f"{like.dtype} {list(shape)} on {like.device}")
    _layout.check_rows_contiguous(name, out)
    _layout.check_writable(name, out)
    return out


def _check_apart(
    name: str, out: torch.Tensor, other: torch.Tensor, itself: torch.Tensor | None = None
) -> None:
    """Raise ValueError when `out` shares memory with an input that is read while it is written.

    Being `itself`, element for element, is allowed: each element is read before it is written.
    """
    if itself is None and _are_disjoint(out, other):
        return
    storage = out.untyped_storage().data_ptr()
    shared = other.untyped_storage().data_ptr() == storage and overlap(out, other)
    if itself is not None and not shared and itself.untyped_storage().data_ptr() == storage:
        is_same = out.data_ptr() == itself.data_ptr() and out.stride() == itself.stride()
        shared = not is_same and overlap(out, itself)
    if shared:
        raise invalid(
            name, "memory of another argument", "memory of its own: inputs are read as it is written"
        )


def _are_disjoint(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors without holes lie apart; False when that takes a closer look."""
    if not (a.is_contiguous() and b.is_contiguous()):
        return False
    first, second = a.data_ptr(), b.data_ptr()
    return first + a.nbytes <= second or second + b.nbytes <= first


def _row_mask(mask: object, v: torch.Tensor) -> torch.Tensor:
    """The bool or uint8 mask `[n]` as contiguous uint8 on the device of `v`."""
    if not isinstance(mask, torch.Tensor) or mask.dtype not in (torch.bool, torch.uint8):
        raise invalid("mask", _describe(mask), "a bool or uint8 tensor")
    if mask.shape != v.shape[:1] or mask.device != v.device:
        raise invalid("mask", f"{list(mask.shape)} on {mask.device}", f"[{v.shape[0]}] on {v.device}")
    if mask.numel() and not mask.data_ptr():  # kernels would take its address for that of no mask
        raise invalid("mask", "a tensor whose storage was freed", "memory")
    return mask.contiguous().view(torch.uint8)


def _row_ranges(indptr: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Int32 `indptr [n + 1]` over the rows of `v`, on its device; checked where it may be read."""
    if not _checks.is_readable(indptr):
        return _checks.page_ids("indptr", indptr, v.device)
    rows = _checks.rows("indptr", indptr, first=None)
    if rows.total > v.shape[0]:
        raise invalid("indptr[-1]", rows.total, f"at most {v.shape[0]}, the rows of v")
    return rows.indptr.to(v.device)

"""Checks of the tensors of one run against the plan: a microsecond or so each, and they name what is wrong.

Letters: T query rows, Hq heads, D head dims.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from arch_caps import Request
from rocade._dtypes import torch_dtype
from rocade._errors import invalid
from rocade._layout import check_no_grad, check_rows_contiguous, check_writable
from rocade._plan import State


def queries(
    q: torch.Tensor, request: Request, rows: int, device: torch.device, *, padded: bool = False
) -> None:
    """Check q `[T, Hq, Dqk]`; with `padded`, rows beyond the planned T are allowed."""
    if not isinstance(q, torch.Tensor):
        raise invalid("q", type(q).__name__, "a tensor")
    shape = (rows, request.num_qo_heads, request.head_dim_qk)
    if q.shape != shape and not (padded and q.dim() == 3 and q.shape[0] > rows and q.shape[1:] == shape[1:]):
        raise invalid("q", f"shape {list(q.shape)}", f"shape {list(shape)}, as planned")
    if q.dtype is not torch_dtype(request.q_dtype):
        raise invalid("q", q.dtype, f"{torch_dtype(request.q_dtype)}, the q dtype of the plan")
    if q.device != device:
        raise invalid("q", f"device {q.device}", f"device {device}")
    check_rows_contiguous("q", q)
    check_no_grad("q", q)


def result(
    name: str,
    given: torch.Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    q: torch.Tensor,
    others: Iterable[torch.Tensor],
) -> torch.Tensor:
    """The tensor to write a result into: the caller's, checked, or a new one.

    It shares no memory with `q`, nor with `others`: keys, values and the other result.
    """
    if given is None:
        return torch.empty(shape, dtype=dtype, device=q.device)
    same(name, given, shape, dtype, q.device)
    check_writable(name, given)
    if overlap(given, q):
        raise invalid(name, "memory of q", "memory of its own: q is read while the result is written")
    storage = given.untyped_storage().data_ptr()  # asked first: the comparison of elements is slower
    if any(other.untyped_storage().data_ptr() == storage and overlap(given, other) for other in others):
        raise invalid(name, "memory of K, V or the other result", "memory of its own")
    return given


def pair(state: object) -> State:
    """The caller's `partial_state` as a State; its tensors are checked later, against the results."""
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise invalid("partial_state", type(state).__name__, "a pair (o, lse) of tensors")
    return State(*state)


def partial_state(state: State, out: torch.Tensor, lse: torch.Tensor | None, rows: int) -> State:
    """Check an earlier state `(o, lse)` that is merged in; a copy of it where the results overwrite it."""
    o, s = state
    same("partial_state[0]", o, (rows, *out.shape[1:]), out.dtype, out.device)
    same("partial_state[1]", s, (rows, out.shape[1]), torch.float32, out.device)
    check_no_grad("partial_state[0]", o)
    check_no_grad("partial_state[1]", s)
    written = [t for t in (out, lse) if t is not None]
    if any(overlap(o, t) for t in written):
        o = o.clone()
    if any(overlap(s, t) for t in written):
        s = s.clone()
    return State(o, s)


def same(
    name: str, given: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """Check shape, dtype, device and the last stride of a tensor that the caller owns."""
    if not isinstance(given, torch.Tensor):
        raise invalid(name, type(given).__name__, "a tensor")
    if given.shape != shape:
        raise invalid(name, f"shape {list(given.shape)}", f"shape {list(shape)}")
    if given.dtype is not dtype:
        raise invalid(name, given.dtype, str(dtype))
    if given.device != device:
        raise invalid(name, f"device {given.device}", f"device {device}")
    check_rows_contiguous(name, given)


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors may share an element. Views that take turns in the rows of one buffer do not."""
    if a.numel() == 0 or b.numel() == 0 or a.device != b.device:
        return False
    (a_first, a_end), (b_first, b_end) = _extent(a), _extent(b)
    return a_first < b_end and b_first < a_end and not _interleaved(a, b)


def _interleaved(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether rows of `a` and `b` repeat at the same distance and never meet within it. All in bytes."""
    pitch = a.stride(0) * a.element_size() if a.dim() else 0
    if pitch <= 0 or not b.dim() or b.stride(0) * b.element_size() != pitch:
        return False
    (a_first, a_end), (b_first, b_end) = _extent(a[0]), _extent(b[0])
    ahead = (b_first - a_first) % pitch
    return a_end - a_first <= ahead and ahead + b_end - b_first <= pitch


def _extent(t: torch.Tensor) -> tuple[int, int]:
    """First address, and one past the last, that a tensor reaches."""
    reach = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    first = t.data_ptr()
    return first, first + (reach + 1) * t.element_size()

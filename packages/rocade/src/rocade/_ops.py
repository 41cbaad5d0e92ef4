"""The ops that `torch.compile` sees. Eager calls never come here: a wrapper goes to its plan directly.

A wrapper is one fixed integer to the compiler, and the op looks its current plan up. Planning again therefore
changes nothing that a compiled graph depends on, unless the output's dtype or head size changes.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, Protocol

import torch

from rocade import _request
from rocade._errors import NotPlannedError, invalid
from rocade._plan import State
from rocade._request import Scale

# For the life of the process; torch drops an op when its Library object goes away.
LIBRARY = torch.library.Library("rocade", "DEF")  # type: ignore[no-untyped-call]
# Strides are the caller's to choose, so the compiler must not change those it was shown.
TAGS = (torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag)


class Runner(Protocol):
    """What an op needs of a wrapper."""

    def _execute(
        self,
        q: torch.Tensor,
        caches: Sequence[torch.Tensor],
        qk_factor: float,
        v_scale: float,
        out: torch.Tensor | None,
        lse: torch.Tensor | None,
        partial: State | None,
        *,
        return_lse: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]: ...

    def _promised(self) -> tuple[torch.dtype, int]: ...


_runners: weakref.WeakValueDictionary[int, Runner] = weakref.WeakValueDictionary()
_next_handle = itertools.count(1)


def register(runner: Runner) -> int:
    """A handle for a wrapper, valid while the wrapper lives and never used again."""
    handle = next(_next_handle)
    _runners[handle] = runner
    return handle


def _no_backward(*_: object) -> NoReturn:
    """What autograd finds; without it, torch would leave gradients out and only warn."""
    raise RuntimeError("rocade has no backward: call it under torch.no_grad()")


def define(schema: str, impl: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Add the op `rocade::<schema>`: one implementation for every device, and one that only makes shapes."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=TAGS)  # type: ignore[no-untyped-call]
    LIBRARY.impl(name, impl, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"rocade::{name}", fake, lib=LIBRARY)
    if "(a!)" not in schema:  # torch takes a backward for functional ops alone, and refuses one for others
        torch.library.register_autograd(f"rocade::{name}", _no_backward, lib=LIBRARY)


def attend(
    runner: Runner,
    handle: int,
    q: torch.Tensor,
    caches: Sequence[torch.Tensor],
    qk_scales: tuple[float, list[torch.Tensor]],
    v_scales: tuple[float, list[torch.Tensor]],
    out: torch.Tensor | None,
    lse: torch.Tensor | None,
    partial: tuple[torch.Tensor, torch.Tensor] | None,
    *,
    return_lse: bool,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """A wrapper's run, written as ops for the compiler. The scales come from `split_scales`."""
    dtype, head_dim = runner._promised()
    scales = (qk_scales[0], v_scales[0], qk_scales[1], v_scales[1])
    given = (handle, q, list(caches), *scales, *(partial or (None, None)), dtype, head_dim)
    if out is None and lse is None:
        if not return_lse:
            result: torch.Tensor = torch.ops.rocade.attend(*given)
            return result
        pair: tuple[torch.Tensor, torch.Tensor] = torch.ops.rocade.attend_lse(*given)
        return pair
    if out is None:
        out = _out_like(q, dtype, head_dim)
    if lse is None and return_lse:
        lse = _lse_like(q)
    torch.ops.rocade.attend_out(*given, out, lse)
    return (out, lse) if return_lse and lse is not None else out


def _out_like(q: torch.Tensor, dtype: torch.dtype, head_dim: int) -> torch.Tensor:
    return q.new_empty((q.shape[0], q.shape[1], head_dim), dtype=dtype)


def _lse_like(q: torch.Tensor) -> torch.Tensor:
    return q.new_empty((q.shape[0], q.shape[1]), dtype=torch.float32)


def _live(handle: int, dtype: torch.dtype, head_dim: int) -> Runner:
    """The wrapper of a handle; ValueError when its plan no longer makes what the graph was compiled for."""
    runner = _runners.get(handle)
    if runner is None:
        raise NotPlannedError("the wrapper that this graph was compiled with is gone")
    planned = runner._promised()
    if planned != (dtype, head_dim):
        raise invalid(
            "plan",
            f"output {planned[0]} with head_dim {planned[1]}",
            f"{dtype} with head_dim {head_dim}, for which this graph was compiled",
        )
    return runner


def split_scales(scales: Iterable[tuple[str, Scale]]) -> tuple[float, list[torch.Tensor]]:
    """Named scales as one number and the tensors among them, which have no value to read while tracing."""
    factor, tensors = 1.0, []
    for name, scale in scales:
        if scale is None:
            continue
        if isinstance(scale, torch.Tensor):
            tensors.append(_request.one_element(name, scale))
        else:
            factor *= _request.scale(name, scale)
    return factor, tensors


def product(factor: float, tensors: Iterable[torch.Tensor]) -> float:
    """What `split_scales` took apart, multiplied."""
    for tensor in tensors:
        factor *= _request.scale("scale", tensor)
    return factor


def _run(
    given: Sequence[Any], out: torch.Tensor | None, lse: torch.Tensor | None, *, return_lse: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the wrapper that an op's arguments name; `given` is in the order of `_GIVEN`."""
    handle, q, caches, qk_factor, v_factor, qk_scales, v_scales, partial_out, partial_lse, dtype, head_dim = (
        given
    )
    partial = None if partial_out is None else State(partial_out, partial_lse)
    factors = product(qk_factor, qk_scales), product(v_factor, v_scales)
    runner = _live(handle, dtype, head_dim)
    return runner._execute(q, caches, *factors, out, lse, partial, return_lse=return_lse)


def _attend(*given: Any) -> torch.Tensor:
    return _run(given, None, None, return_lse=False)[0]


def _attend_lse(*given: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    return _run(given, None, None, return_lse=True)


def _attend_out(*given: Any) -> None:
    _run(given[:-2], given[-2], given[-1], return_lse=False)


_GIVEN = (
    "int handle, Tensor q, Tensor[] caches, float qk_factor, float v_factor, Tensor[] qk_scales, "
    "Tensor[] v_scales, Tensor? partial_out, Tensor? partial_lse, ScalarType dtype, int head_dim"
)
define(
    f"attend({_GIVEN}) -> Tensor",
    _attend,
    lambda handle, q, *given: _out_like(q, given[-2], given[-1]),
)
define(
    f"attend_lse({_GIVEN}) -> (Tensor, Tensor)",
    _attend_lse,
    lambda handle, q, *given: (_out_like(q, given[-2], given[-1]), _lse_like(q)),
)
define(
    f"attend_out({_GIVEN}, Tensor(a!) out, Tensor(b!)? lse) -> ()",
    _attend_out,
    lambda *given: None,
)

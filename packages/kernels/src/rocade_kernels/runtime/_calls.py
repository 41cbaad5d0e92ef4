"""Repeats a call of several launches natively, for an owner that goes away with its plan.

As in `_replay`, a call is known again by the layout of its tensors. Two numbers change from call to call: the
scale of the logits and that of the result.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_double, c_int32, c_int64, c_void_p, py_object
from typing import Any, NamedTuple

from rocade_kernels import _native
from rocade_kernels._cache import BuildError
from rocade_kernels.runtime import _packed
from rocade_kernels.runtime._packed import Launched
from rocade_kernels.runtime._replay import Place

COUNTS = (3, 4, 5, 6, 7)  # of tensors that the native side takes
NOWHERE = -1


class StepLayout(NamedTuple):
    """Where the addresses and the two numbers of a call stand in a block; made once for many launches."""

    places: ctypes.Array[c_int64]  # three numbers each, as `Place`
    scale_at: int
    out_scale_at: int

    @classmethod
    def of(cls, places: Sequence[Place], scale_at: int = NOWHERE, out_scale_at: int = NOWHERE) -> StepLayout:
        """From places one by one."""
        numbers = [number for place in places for number in place]
        return cls((c_int64 * len(numbers))(*numbers), scale_at, out_scale_at)


class Step(NamedTuple):
    """A launch of a call, and where its addresses and numbers stand."""

    launched: Launched
    layout: StepLayout


class Calls:
    """The calls of one owner that can be repeated. They hold Python's lock, so threads may share it."""

    __slots__ = ("_born", "_calls", "_free", "_lib")

    def __init__(self, read: int) -> None:
        """Know nothing yet.

        Args:
            read: address of `dltensor_from_py_object_no_sync` in the DLPack exchange table of the tensors.

        Raises:
            BuildError: there is no native library.
        """
        self._calls = 0
        self._lib = _library()
        self._free = self._lib.free  # kept: at the end of the process the module's names may be gone
        self._calls = self._lib.create(read)
        self._born = _forks

    def __del__(self) -> None:
        if self._calls:
            self._free(self._calls)

    def learn(self, steps: Sequence[Step], tensors: Sequence[object], written: int) -> bool:
        """Keep the launches of a call. False where a block does not hold the addresses of these very tensors.

        Args:
            steps: in order.
            tensors: the call's, in the order that `run` gets them.
            written: bit i tells that tensor i is written, so that a call in which it shares memory with
                another one is not repeated.
        """
        if len(tensors) not in self._lib.run:
            return False
        packed = []
        for launched, (flat, *scales_at) in steps:
            launch = _packed.pack_launch(0, launched, flat, len(flat) // 3, len(tensors), written)
            packed.append(launch + _packed.STEP_SCALES.pack(*scales_at))
        objects = (c_void_p * len(tensors))(*map(id, tensors))
        try:
            return not self._lib.learn(self._calls, b"".join(packed), len(packed), ctypes.addressof(objects))
        except RuntimeError:
            return False

    def run(self, stream: int, scale: float, out_scale: float, tensors: Sequence[object]) -> bool:
        """Make the launches of a call that was learned for tensors of this layout; whether it did.

        Raises:
            RuntimeError: something is no tensor.
        """
        if self._born != _forks:  # handles of kernels are the parent's
            return False
        return not self._lib.run[len(tensors)](self._calls, stream, scale, out_scale, *tensors)


class _Library(NamedTuple):
    create: Callable[[int], int]
    free: Callable[[int], None]
    learn: Callable[..., int]
    run: dict[int, Callable[..., int]]


@functools.cache
def _library() -> _Library:
    lib = ctypes.PyDLL(_native.library()._name)

    def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:  # noqa: ANN401  ctypes types
        found = lib[name]
        found.restype, found.argtypes = result, arguments
        return found

    size = function("rk_calls_step_size", c_int64)()
    if size != _packed.STEP_BYTES:
        raise BuildError(f"rk_step has {size} bytes; expected {_packed.STEP_BYTES}")
    run = {
        count: function(
            f"rk_calls_{count}", c_int32, c_void_p, c_void_p, c_double, c_double, *[py_object] * count
        )
        for count in COUNTS
    }
    return _Library(
        function("rk_calls_create", c_void_p, c_void_p),
        function("rk_calls_free", None, c_void_p),
        function("rk_calls_learn", c_int32, c_void_p, c_char_p, c_int64, c_void_p),
        run,
    )


_forks = 0  # between the process that loaded the library and this one


def _after_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)

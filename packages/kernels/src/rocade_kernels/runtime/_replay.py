"""Repeats launches natively: what Python checked and launched once is launched again by one native call.

A call is known again by the layout of its tensors: shapes, strides, types, devices and the alignment of their
addresses. That decides everything but where they are, so only addresses are written into the argument block
anew. The first call of a layout, and every call that is not known, goes the ordinary way.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_int32, c_int64, c_void_p, py_object
from typing import Any, NamedTuple

from rocade_kernels import _native
from rocade_kernels._cache import BuildError
from rocade_kernels.runtime import _packed
from rocade_kernels.runtime._packed import Launched

COUNTS = (4, 6, 7, 8)  # of tensors that the native side takes


class Place(NamedTuple):
    """Where an address stands in the argument block: at which byte, whose it is, bytes added to it."""

    offset: int
    tensor: int
    delta: int = 0


class Replay:
    """The launches learned in this process. Python's lock is held in every call, so threads may share it."""

    def __init__(self, read: int) -> None:
        """Make an empty one.

        Args:
            read: address of `dltensor_from_py_object_no_sync` in the DLPack exchange table of the tensors.

        Raises:
            BuildError: there is no native library.
        """
        lib = ctypes.PyDLL(_native.library()._name)
        size = _function(lib, "rk_replay_launch_size", c_int64, [])()
        if size != _packed.LAUNCH.size:
            raise BuildError(f"rk_launch has {size} bytes; expected {_packed.LAUNCH.size}")
        table = _function(lib, "rk_replay_create", c_void_p, [c_void_p])(read)
        self._table = c_void_p(table)
        self._learn = _function(lib, "rk_replay_learn", c_int32, [c_void_p, ctypes.c_char_p, c_void_p])
        self._forget = _function(lib, "rk_replay_forget", None, [c_void_p])
        self._run = {
            count: _function(
                lib, f"rk_replay_{count}", c_int32, [c_void_p, c_int64, c_void_p, *[py_object] * count]
            )
            for count in COUNTS
        }
        weakref.finalize(self, _function(lib, "rk_replay_free", None, [c_void_p]), self._table)
        _alive.add(self)

    def runner(self, count: int) -> Callable[..., int]:
        """`run(op, stream, *tensors)` for `count` tensors: 0 when it launched what `op` learned.

        It raises the tensor library's RuntimeError for what is no tensor.
        """
        return functools.partial(self._run[count], self._table)

    def learn(
        self, op: int, launched: Launched, places: Sequence[Place], tensors: Sequence[object], written: int
    ) -> bool:
        """Keep a launch. False where the block does not hold the addresses of these very tensors.

        Args:
            op: the number that calls of this kind go by.
            launched: what was launched, with the block as it was.
            places: every address in the block.
            tensors: the call's, in the order that a runner gets them.
            written: bit i tells that tensor i is written, so that a call in which it shares memory with
                another one is not repeated.
        """
        flat = (c_int64 * (3 * len(places)))(*[number for place in places for number in place])
        objects = (c_void_p * len(tensors))(*map(id, tensors))
        packed = _packed.pack_launch(op, launched, flat, len(places), len(tensors), written)
        try:
            return not self._learn(self._table, packed, ctypes.addressof(objects))
        except RuntimeError:
            return False

    def forget(self) -> None:
        """Drop everything learned."""
        self._forget(self._table)


def replay(read: int) -> Replay | None:
    """A `Replay`, or None where there is no native library."""
    try:
        return Replay(read)
    except BuildError:
        return None


def _function(
    lib: ctypes.PyDLL,
    name: str,
    result: type[c_int32] | type[c_int64] | type[c_void_p] | None,
    arguments: Sequence[Any],
) -> Callable[..., Any]:
    function = lib[name]  # a new object each time, whose types are its own
    function.restype, function.argtypes = result, list(arguments)
    return function


_alive: weakref.WeakSet[Replay] = weakref.WeakSet()


def _after_fork() -> None:
    """Handles of kernels are the parent's."""
    for each in list(_alive):
        each.forget()


os.register_at_fork(after_in_child=_after_fork)

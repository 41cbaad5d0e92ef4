"""What cuLaunchKernelEx takes for a kernel that may start before the one in front of it has ended.

For machines without the native library, whose replay/queue.cpp says the same.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_uint32, c_void_p

from rocade_kernels.runtime._interface import Grid

_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # of CUlaunchAttributeID


class _Value(ctypes.Union):
    _fields_ = (("bytes", ctypes.c_char * 64), ("number", c_int32))


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", c_int32), ("padding", ctypes.c_char * 4), ("value", _Value))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("lds", c_uint32),
        ("stream", c_void_p),
        ("attributes", POINTER(Attribute)),
        ("count", c_uint32),
    )


_ALLOWED = Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, b"", _Value(number=1))


def config(grid: Grid, block: int, lds: int, stream: int) -> Config:
    """Geometry and stream of such a launch, which takes the attribute along."""
    made = Config((c_uint32 * 3)(*grid), (c_uint32 * 3)(block, 1, 1), lds, stream)
    made.attributes, made.count = ctypes.pointer(_ALLOWED), 1
    return made

"""The structs of replay/rocade_replay.h as packed bytes: fields of 8 bytes, in the header's order.

Apart from those of the CPU kernels, so that an edit here leaves those kernels' evidence fresh.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int64
from struct import Struct
from typing import NamedTuple

from rocade_kernels.runtime._arguments import Arguments
from rocade_kernels.runtime._interface import Grid

LAUNCH = Struct("@15q")
STEP_SCALES = Struct("@2q")  # what follows the launch in a step
STEP_BYTES = LAUNCH.size + STEP_SCALES.size
QUEUE = Struct("@10q")


class Launched(NamedTuple):
    """A launch that was made: handles of the driver, geometry, arguments."""

    function: int
    launch: int
    grid: Grid
    block: int
    lds: int
    args: Arguments
    early: int = 0  # address of the function for a launch with attributes, where it was made with that


def pack_launch(
    op: int, launched: Launched, places: ctypes.Array[c_int64], count: int, tensors: int, written: int
) -> bytes:
    """`rk_launch` of a launch with `count` places; its block and `places` must outlive the use of it."""
    block = launched.args.block
    return LAUNCH.pack(
        op,
        *(launched.function, launched.launch, launched.early),
        *launched.grid,
        *(launched.block, launched.lds),
        *(ctypes.addressof(block), ctypes.sizeof(block)),
        *(ctypes.addressof(places), count),
        *(tensors, written),
    )

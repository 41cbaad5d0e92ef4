"""The structs of planner/work_list.h as packed bytes, and its functions in the native library.

They are apart from those of the CPU kernels, whose evidence does not depend on them.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_int32, c_int64, c_void_p
from struct import Struct

from rocade_kernels import _native

WORK_ARGS = Struct("@14q" + 2 * "4q3d" + "d5q")
WORK_FACTS = Struct("@21q")
WORK_ITEM = Struct("@2q8iI3i")
WORK_MERGE = Struct("@6i")
STRUCTS = (WORK_ARGS, WORK_FACTS, WORK_ITEM, WORK_MERGE)

_PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "rk_work_struct_sizes": (None, [c_void_p]),
    "rk_work_create": (c_void_p, []),
    "rk_work_free": (None, [c_void_p]),
    "rk_work_plan": (c_int32, [c_void_p, c_void_p, c_void_p]),
    "rk_work_write": (c_int32, [c_void_p, c_void_p]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The native library with the planner's functions declared.

    Raises:
        BuildError: there is no native library.
        OSError: its structs are not these.
    """
    lib = _native.library()
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    sizes = (c_int64 * len(STRUCTS))()
    lib.rk_work_struct_sizes(sizes)
    expected = [struct.size for struct in STRUCTS]
    if list(sizes) != expected:
        raise OSError(f"the planner of {lib._name} has structs of {list(sizes)} bytes; expected {expected}")
    return lib

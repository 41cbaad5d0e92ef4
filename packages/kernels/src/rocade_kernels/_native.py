"""Loads the native CPU library once a process: the wheel's own, or one built on demand."""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_char_p, c_int32, c_int64, c_void_p
from pathlib import Path

from rocade_kernels import _abi, _cpu_build
from rocade_kernels._cache import BuildError

ABI_VERSION = 5

_PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "rk_abi_version": (c_int64, []),
    "rk_source_hash": (c_char_p, []),
    "rk_struct_sizes": (None, [c_void_p]),
    "rk_isa_count": (c_int64, []),
    "rk_isa_name": (c_char_p, [c_int64]),
    "rk_check_indptr": (c_int32, [c_void_p, c_int64, c_int64, c_int64, c_void_p]),
    "rk_check_levels": (c_int32, [c_char_p, c_int64, c_void_p, c_void_p]),
    "rk_plan_create": (c_int32, [c_char_p, c_void_p, c_void_p]),
    "rk_plan_free": (None, [c_void_p]),
    "rk_plan_units": (c_int64, [c_void_p, c_void_p, c_int64]),
    "rk_plan_run": (c_int32, [c_void_p, c_char_p]),
    "rk_merge": (c_int32, [c_char_p]),
    "rk_merge_pair": (c_int32, [c_char_p]),
    "rk_append": (c_int32, [c_char_p]),
    "rk_use_team": (None, [c_void_p, c_void_p]),
}


def load(path: Path) -> ctypes.CDLL:
    """Load a library and check that it speaks this package's ABI; `OSError` when it does not."""
    lib = ctypes.CDLL(str(path))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.rk_abi_version() != ABI_VERSION:
        raise OSError(f"{path} has ABI version {lib.rk_abi_version()}; expected {ABI_VERSION}")
    sizes = (c_int64 * len(_abi.STRUCTS))()
    lib.rk_struct_sizes(sizes)
    expected = [struct.size for struct in _abi.STRUCTS]
    if list(sizes) != expected:
        raise OSError(f"{path} has structs of {list(sizes)} bytes; expected {expected}")
    return lib


def _shipped() -> ctypes.CDLL | None:
    if not _cpu_build.SHIPPED.exists():
        return None
    try:
        lib = load(_cpu_build.SHIPPED)
    except (OSError, AttributeError):
        return None  # of another machine or version; one is built in its place
    return lib if lib.rk_source_hash().decode() == _cpu_build.source_hash() else None


@functools.cache
def _load_once() -> ctypes.CDLL | BuildError:
    shipped = _shipped()
    if shipped is not None:
        return shipped
    try:
        path = _cpu_build.cached_library()
    except BuildError as error:
        return error
    try:
        return load(path)
    except (OSError, AttributeError) as error:
        return BuildError(f"{path} cannot be loaded ({error}); remove it to have it built again")


def library() -> ctypes.CDLL:
    """The library; `BuildError` on a machine that has none and cannot build one."""
    found = _load_once()
    if isinstance(found, BuildError):
        raise found
    return found


def library_or_none() -> ctypes.CDLL | None:
    """The library, or None where `library` raises."""
    found = _load_once()
    return None if isinstance(found, BuildError) else found

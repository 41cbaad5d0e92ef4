"""An AITER library in this process: opened once, called through the loader of the native library."""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_char_p, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

from rocade_kernels import _native, _settings
from rocade_kernels._cache import BuildError
from rocade_kernels.aiter.elf import check_library
from rocade_kernels.aiter.errors import AiterError, CallError, LibraryError, NoKernelError
from rocade_kernels.aiter.names import V3, VariantKey, entry
from rocade_kernels.aiter.search import check_trusted

CALL = Struct("@39q2d")  # rk_aiter_call
TEXT_BYTES = 2048
NOT_LOADED, NO_KERNEL, THREW, NOT_EXPRESSIBLE = 1, 2, 3, 4


@functools.cache
def _loader() -> ctypes.CDLL:
    """The native library with the loader's functions declared; `BuildError` where there is none."""
    lib = ctypes.CDLL(_native.library()._name)
    prototypes: dict[str, tuple[object, list[object]]] = {
        "rk_aiter_call_size": (c_int64, []),
        "rk_aiter_layout_size": (c_int64, [c_char_p]),
        "rk_aiter_open": (c_int32, [c_char_p, c_char_p, c_char_p, c_void_p, c_char_p, c_int64]),
        "rk_aiter_run": (c_int32, [c_int64, c_char_p, c_char_p, c_int64]),
    }
    for name, (result, arguments) in prototypes.items():
        function: Any = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.rk_aiter_call_size() != CALL.size:
        raise BuildError(f"rk_aiter_call has {lib.rk_aiter_call_size()} bytes; expected {CALL.size}")
    return lib


def layout_bytes(layout: str) -> int:
    """Size of the argument struct of a layout of `versions`; 0 where the loader does not know it."""
    return int(_loader().rk_aiter_layout_size(layout.encode()))


@dataclass(frozen=True, slots=True)
class Library:
    """An open library. It stays open as long as the process, also when another file takes its place."""

    path: Path
    key: VariantKey
    version: str
    handle: int

    def run(self, call: bytes) -> None:
        """Queue the kernels of a packed `rk_aiter_call`; errors as `calls.mha_fwd` says."""
        text = ctypes.create_string_buffer(TEXT_BYTES)
        status = _loader().rk_aiter_run(self.handle, call, text, TEXT_BYTES)
        if status:
            raise self._error(status, text.value.decode(errors="replace"))

    def _error(self, status: int, text: str) -> AiterError:
        name, said = self.path.name, f"AITER {self.version}"
        if status == NO_KERNEL:
            return NoKernelError(
                f"{name} of {said} has no kernel for this call (head dims, page size, or a pool too large)"
            )
        if status == THREW:
            return CallError(f"{name} of {said} threw {text}")
        return CallError(f"{name} of {said} cannot be called: {text}")


@functools.lru_cache(maxsize=1024)
def load(path: Path, key: VariantKey, version: str) -> Library:
    """Open a library, once a process.

    Args:
        path: as `search.find` gave it.
        key: what it was built for.
        version: of the AITER that built it.

    Raises:
        LibraryError: it is damaged, open to others, does not export the function, or does not load.
        AiterError: the argument layout of `version` is not known (`UnknownVersionError`) or not established.
        BuildError: there is no native library of rocade to load it with.
    """
    layout, symbol = entry(key, version)
    check_trusted(path)
    check_library(path, symbol)
    if key.family in V3:
        _check_asm_folder(path)
    lib, handle, text = _loader(), c_int64(), ctypes.create_string_buffer(TEXT_BYTES)
    names = str(path).encode(), symbol.encode(), layout.encode()
    if lib.rk_aiter_open(*names, ctypes.byref(handle), text, TEXT_BYTES):
        said = text.value.decode(errors="replace")
        raise LibraryError(
            f"{path} cannot be loaded: {said}. AITER's libraries need the torch that they were built with, "
            "imported before them"
        )
    return Library(path, key, version, handle.value)


def _check_asm_folder(path: Path) -> None:
    """AITER ends the process when it does not find its hand-written kernels."""
    folder = _settings.AITER_ASM_DIR.read()
    if not folder or not Path(folder).is_dir():
        raise LibraryError(
            f"{path} is not loaded: {_settings.AITER_ASM_DIR.name} names no folder, and AITER aborts the "
            "process when it does not find its kernels"
        )

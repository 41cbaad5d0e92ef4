"""Which threads the native kernels run on: teams of the process's OpenMP runtime, or the library's own pool.

An operator of PyTorch leaves its OpenMP workers spinning for milliseconds. A second pool then fights them for
the cores (a decode step right after a matrix product took up to three times as long), so the kernels join
their team.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from rocade_kernels import _native, _settings

_RUNTIMES = ("libgomp", "libiomp5", "libomp")  # GCC's, Intel's and LLVM's; all have GCC's entry point
_MAPS = Path("/proc/self/maps")


def loaded_openmp(prefer: Path | None = None) -> Path | None:
    """The OpenMP runtime that this process has loaded, one below `prefer` first; None when there is none."""
    if sys.platform != "linux":
        return None
    lines = (line.split(maxsplit=5) for line in _MAPS.read_text().splitlines())
    paths = dict.fromkeys(Path(fields[5]) for fields in lines if len(fields) == 6)
    found = [path for path in paths if path.name.startswith(_RUNTIMES)]
    preferred = [path for path in found if prefer is not None and path.is_relative_to(prefer)]
    return next(iter(preferred + found), None)


def use_openmp(runtime: Path) -> bool:
    """Run on teams of `runtime` from now on; False when it lacks an entry point. A forked child does not."""
    try:
        lib = ctypes.CDLL(str(runtime))
        parallel, number = lib.GOMP_parallel, lib.omp_get_thread_num
    except (OSError, AttributeError):
        return False
    _native.library().rk_use_team(
        ctypes.cast(parallel, ctypes.c_void_p), ctypes.cast(number, ctypes.c_void_p)
    )
    return True


def use_own_pool() -> None:
    """Run on the library's own threads from now on."""
    _native.library().rk_use_team(None, None)


def join_openmp(prefer: Path | None = None) -> bool:
    """Use the process's OpenMP runtime unless `ROCADE_CPU_POOL` says `own`; tells whether it is used now."""
    if _settings.cpu_pool() == "own":
        return False
    runtime = loaded_openmp(prefer)
    return runtime is not None and use_openmp(runtime)

"""A driver for an idle GPU that keeps what it is asked to launch."""

from __future__ import annotations

import ctypes
from typing import Any

from rocade._emulation import Emulation
from rocade.backends._idle import idle
from rocade_kernels import hip_abi

STRUCTS = {"attention": hip_abi.AttentionArgs, "merge_partials": hip_abi.MergePartialsArgs}
Launch = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *[ctypes.c_uint] * 7,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
LaunchEarly = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)
Launched = tuple[str, tuple[int, ...], bytes]


class Driver:
    """An idle GPU's driver that keeps name, geometry and arguments of every launch."""

    def __init__(self, target: str = "gfx942") -> None:
        self.code = 0
        self.launches: list[Launched] = []
        self.early: list[str] = []  # names of those that may start before what is in front of them has ended
        self.functions = {"launch": Launch(self._launch), "launch early": LaunchEarly(self._launch_early)}
        self.emulation: Emulation = idle(target, self, *self.functions)  # type: ignore[arg-type]

    def bare(self, name: str) -> object:
        return self.functions[name]

    def error(self, what: str, name: str, code: int) -> Exception:
        return RuntimeError(f"{what}: {code}")

    def _launch(self, *given: Any) -> int:
        name = self.emulation.device._loaded.runtime.loaded[given[0] - 1]  # type: ignore[attr-defined]
        size = ctypes.sizeof(STRUCTS[name.split("-")[0]])
        numbers = tuple(int(x or 0) for x in given[1:9])
        self.launches.append((name, numbers, ctypes.string_at(given[9][0], size)))
        return self.code

    def _launch_early(self, config: int, function: int, params: object, extra: object) -> int:
        stream = ctypes.c_uint64.from_address(config + 32).value
        code = self._launch(function, *(ctypes.c_uint * 7).from_address(config), stream, params, extra)
        self.early.append(self.launches[-1][0])
        return code

    def taken(self) -> list[Launched]:
        """What was launched since the last time."""
        found, self.launches = self.launches, []
        return found

"""A GPU that does nothing: its driver's launch call returns at once, so that a call takes the CPU's part.

CPU tensors stand for its memory, as in `rocade.emulate`, and results are left as they were.
"""

from __future__ import annotations

import ctypes

from arch_caps import TARGETS
from rocade._emulation import Emulation
from rocade.backends._gpu import Gpu
from rocade_kernels.runtime import DeviceFacts, DriverFunction, Image, Library

# Of the C library: takes nothing, reads one register, and returns 0, which drivers mean by success.
_NOTHING = "fegetround"
_LDS = 1 << 31


class IdleRuntime:
    """The largest product with a target's silicon, as far as plans depend on it."""

    def __init__(self, target: str, library: Library, launch_name: str, early_name: str) -> None:
        self.target = target
        self.loaded: list[str] = []  # names of instances; handles count them from 1
        self._library = library
        self._launch_name = launch_name
        self._early_name = early_name

    def load(self, code: Image) -> DriverFunction:
        """A function whose launches all make the same call of the library."""
        self.loaded.append(code.instance.name)
        return DriverFunction(
            code.instance.name,
            self._library,
            self._launch_name,
            len(self.loaded),
            lds=_LDS,
            raise_lds=lambda _handle, _size: None,
            mend=lambda _code: False,
            early_name=self._early_name,
        )

    def facts(self) -> DeviceFacts:
        """The table's."""
        table = TARGETS[self.target]
        wave, lds = table.wave_size.value, table.lds_bytes.value
        assert wave is not None
        assert lds is not None
        units = max(sku.compute_units or 1 for sku in table.skus)
        return DeviceFacts(f"idle {table.title}", units, wave, lds, "none")


def idle(
    target: str, library: Library | None = None, launch_name: str = _NOTHING, early_name: str = ""
) -> Emulation:
    """A context in which CPU tensors are on such a GPU; calls then plan and launch as on a real one.

    Args:
        target: its name in the table.
        library: what to launch with in place of nothing.
        launch_name: the function of it, with the arguments of hipModuleLaunchKernel.
        early_name: the function with the arguments of cuLaunchKernelEx, if it has one.
    """
    found = library or Library(ctypes.CDLL("libm.so.6"), lambda _lib, code: f"code {code}")
    emulation = Emulation(target, {})
    runtime = IdleRuntime(target, found, launch_name, early_name)
    emulation.device = Gpu(runtime, -1, lambda: 0, lambda: True, lambda: False)
    return emulation

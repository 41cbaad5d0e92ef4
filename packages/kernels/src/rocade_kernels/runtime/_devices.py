"""The runtimes of this process, one for each device; made when first asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rocade_kernels.runtime import _amd, _nvidia
from rocade_kernels.runtime._function import AFTER_FORK
from rocade_kernels.runtime._interface import Runtime
from rocade_kernels.runtime._library import DeviceError, Library, MissingError

_RUNTIMES: dict[str, Callable[[int, str], Runtime]] = {
    "amd": _amd.AmdRuntime,
    "nvidia": _nvidia.NvidiaRuntime,
}
_LIBRARIES: dict[str, Callable[[], Library]] = {"amd": _amd.library, "nvidia": _nvidia.library}
_NAMES = {"amd": "libamdhip64", "nvidia": "libcuda"}

_devices: dict[tuple[str, int], Runtime] = {}
_lock = threading.Lock()
_forked = False


def device(vendor: str, index: int, target: str) -> Runtime:
    """The runtime of one GPU.

    Args:
        vendor: "amd" or "nvidia".
        index: the driver's ordinal, which is torch's device index.
        target: what the device is, in the words of `arch_caps`.

    Raises:
        DeviceError: the driver is missing or refuses the device, or this process was forked from one that
            already used it.
        KeyError: there is no such vendor.
    """
    if _forked:
        raise DeviceError(AFTER_FORK)
    with _lock:
        found = _devices.get((vendor, index))
        if found is None:
            try:
                found = _RUNTIMES[vendor](index, target)
            except MissingError as error:
                raise DeviceError(f"{_NAMES[vendor]}: {error}") from error
            _devices[vendor, index] = found
        return found


def missing(vendor: str) -> str:
    """Why no device of a vendor can be used in this process; empty when one can."""
    if _forked:
        return AFTER_FORK
    try:
        _LIBRARIES[vendor]()
    except MissingError as error:
        return f"{_NAMES[vendor]}: {error}"
    return ""


def _after_fork() -> None:
    """A child starts anew when its parent had no device, and has none when it had."""
    global _forked, _lock
    _forked = _forked or bool(_devices)
    _devices.clear()
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)

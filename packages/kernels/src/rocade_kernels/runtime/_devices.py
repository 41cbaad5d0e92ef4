"""The runtimes of this process, one for each device; made when first asked for."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
_EXCHANGES = {"amd": "hipThreadExchangeStreamCaptureMode", "nvidia": "cuThreadExchangeStreamCaptureMode"}
_RELAXED = 2  # of both drivers' capture modes

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


@contextmanager
def relaxed(vendor: str) -> Iterator[None]:
    """Let this thread ask for an event while some stream is captured, without breaking that capture.

    A capture in the mode that is the default, by any thread, forbids all threads calls that might wait, and
    one of them is enough to end it. In relaxed mode a thread says that its calls have nothing to do with it.

    Raises:
        DeviceError: the driver has no such mode, or this process was forked from one that used the device.
    """
    if _forked:
        raise DeviceError(AFTER_FORK)
    name = _EXCHANGES[vendor]
    lib = _LIBRARIES[vendor]()
    try:
        exchange = lib.bare(name)
    except AttributeError as error:
        raise DeviceError(f"{_NAMES[vendor]}: {error}") from error
    mode = ctypes.c_int(_RELAXED)
    code = exchange(ctypes.byref(mode))  # which leaves the mode before in it
    if code:
        raise lib.error("entering relaxed mode", name, code)
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def _after_fork() -> None:
    """A child starts anew when its parent had no device, and has none when it had."""
    global _forked, _lock
    _forked = _forked or bool(_devices)
    _devices.clear()
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)

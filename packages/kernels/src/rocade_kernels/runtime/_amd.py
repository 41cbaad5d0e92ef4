"""AMD devices through libamdhip64's module API; PyTorch's wheels bring that library along."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_uint, c_void_p
from pathlib import Path

from rocade_kernels.runtime._function import DriverFunction
from rocade_kernels.runtime._interface import DeviceFacts, Image
from rocade_kernels.runtime._library import DeviceError, Library, MissingError, Prototype, open_library

NAMES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
# Numbers of hipDeviceAttribute_t; they have not changed since ROCm 5.
_COMPUTE_UNITS, _LDS_BYTES, _WAVE_SIZE = 63, 74, 87
PCI = Path("/sys/bus/pci/devices")
_ANY_LDS = 1 << 31  # a code object's limit is the device's; HIP has no call to raise it for a module's kernel

_PROTOTYPES: dict[str, Prototype] = {
    "hipInit": (c_int, [c_uint]),
    "hipGetErrorName": (c_char_p, [c_int]),
    "hipGetErrorString": (c_char_p, [c_int]),
    "hipRuntimeGetVersion": (c_int, [POINTER(c_int)]),
    "hipGetDeviceCount": (c_int, [POINTER(c_int)]),
    "hipGetDevice": (c_int, [POINTER(c_int)]),
    "hipSetDevice": (c_int, [c_int]),
    "hipDeviceGetName": (c_int, [c_char_p, c_int, c_int]),
    "hipDeviceGetAttribute": (c_int, [POINTER(c_int), c_int, c_int]),
    "hipDeviceGetPCIBusId": (c_int, [c_char_p, c_int, c_int]),
    "hipModuleLoadData": (c_int, [POINTER(c_void_p), c_void_p]),
    "hipModuleGetFunction": (c_int, [POINTER(c_void_p), c_void_p, c_char_p]),
    "hipModuleLaunchKernel": (c_int, None),
}


def _text(lib: ctypes.CDLL, code: int) -> str:
    words = (lib.hipGetErrorName(code), lib.hipGetErrorString(code))
    return ": ".join(word.decode(errors="replace") if word else "unknown code" for word in words)


@functools.cache
def _library() -> Library:
    return open_library(NAMES, _PROTOTYPES, _text)


def library() -> Library:
    """The driver, with at least one device.

    Raises:
        MissingError: there is no driver, it cannot start, or it has no device.
    """
    lib, count = _library(), c_int()
    try:
        lib.call("starting the driver", "hipInit", 0)
        lib.call("counting devices", "hipGetDeviceCount", ctypes.byref(count))
    except DeviceError as error:
        raise MissingError(str(error)) from error
    if not count.value:
        raise MissingError("the driver has no device")
    return lib


class AmdRuntime:
    """One device by its ordinal."""

    def __init__(self, index: int, target: str) -> None:
        """Find the device.

        Raises:
            MissingError: no driver, or no device at all.
            DeviceError: there is no device of this ordinal.
        """
        self.target = target
        self._index = index
        self._lib = library()
        with self._current():  # an ordinal that does not exist is an error here, not at the first load
            pass

    def load(self, code: Image) -> DriverFunction:
        """Load a code object."""
        name, entry = code.instance.name, code.instance.entry
        module, function = c_void_p(), c_void_p()
        what = f"{name} on device {self._index}"
        with self._current():
            self._lib.call(what, "hipModuleLoadData", ctypes.byref(module), code.image)
            self._lib.call(what, "hipModuleGetFunction", ctypes.byref(function), module, entry.encode())
        return DriverFunction(
            name,
            self._lib,
            "hipModuleLaunchKernel",
            function.value or 0,
            lds=_ANY_LDS,
            raise_lds=lambda _handle, _size: None,
            mend=lambda _code: False,
            kept=code.image,
        )

    def facts(self) -> DeviceFacts:
        """What the driver says."""
        name, version = ctypes.create_string_buffer(256), c_int()
        what = f"device {self._index}"
        self._lib.call(what, "hipDeviceGetName", name, len(name), self._index)
        self._lib.call(what, "hipRuntimeGetVersion", ctypes.byref(version))
        major, rest = divmod(version.value, 10_000_000)
        return DeviceFacts(
            name=name.value.decode(errors="replace"),
            compute_units=self._attribute(_COMPUTE_UNITS),
            wave_size=self._attribute(_WAVE_SIZE),
            lds_bytes=self._attribute(_LDS_BYTES),
            driver=f"HIP {major}.{rest // 100_000}.{rest % 100_000}",
            chip=self._chip(),
        )

    def _chip(self) -> int | None:
        """HIP tells where the device is, and the system what is there; None where it does not."""
        place = ctypes.create_string_buffer(64)
        try:
            what = f"place of device {self._index}"
            self._lib.call(what, "hipDeviceGetPCIBusId", place, len(place), self._index)
            return int((PCI / place.value.decode().lower() / "device").read_text(encoding="ascii"), 16)
        except (DeviceError, OSError, ValueError):
            return None

    def _attribute(self, number: int) -> int:
        value = c_int()
        what = f"attribute {number} of device {self._index}"
        self._lib.call(what, "hipDeviceGetAttribute", ctypes.byref(value), number, self._index)
        return value.value

    @contextmanager
    def _current(self) -> Iterator[None]:
        """This device for a while; the thread's own comes back."""
        before, what = c_int(), f"device {self._index}"
        self._lib.call(what, "hipGetDevice", ctypes.byref(before))
        self._lib.call(what, "hipSetDevice", self._index)
        try:
            yield
        finally:
            self._lib.call(what, "hipSetDevice", before.value)

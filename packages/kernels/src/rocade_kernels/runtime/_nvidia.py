"""NVIDIA devices through libcuda: PTX is compiled by the driver when it is loaded."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_uint, c_void_p

from rocade_kernels.runtime._function import DriverFunction
from rocade_kernels.runtime._interface import DeviceFacts, Image
from rocade_kernels.runtime._library import DeviceError, Library, MissingError, Prototype, open_library

NAMES = ("libcuda.so.1", "libcuda.so")
_LOG_BYTES = 16384
_STATIC_LDS = 49152  # what a launch may ask for before the function's limit is raised
# Launches that may start early, from CUDA 12.3 on: graphs of older drivers cannot hold them.
_EARLY_LAUNCH, _EARLY_SINCE = "cuLaunchKernelEx", 12030
# Numbers of the driver's enums.
_INVALID_CONTEXT = 201
_COMPUTE_UNITS, _WAVE_SIZE, _LDS_BYTES = 16, 10, 97
_MAX_DYNAMIC_LDS = 8
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6

_PROTOTYPES: dict[str, Prototype] = {
    "cuInit": (c_int, [c_uint]),
    "cuGetErrorName": (c_int, [c_int, POINTER(c_char_p)]),
    "cuGetErrorString": (c_int, [c_int, POINTER(c_char_p)]),
    "cuDriverGetVersion": (c_int, [POINTER(c_int)]),
    "cuDeviceGetCount": (c_int, [POINTER(c_int)]),
    "cuDeviceGet": (c_int, [POINTER(c_int), c_int]),
    "cuDeviceGetName": (c_int, [c_char_p, c_int, c_int]),
    "cuDeviceGetAttribute": (c_int, [POINTER(c_int), c_int, c_int]),
    "cuDevicePrimaryCtxRetain": (c_int, [POINTER(c_void_p), c_int]),
    "cuCtxGetCurrent": (c_int, [POINTER(c_void_p)]),
    "cuCtxSetCurrent": (c_int, [c_void_p]),
    "cuCtxPushCurrent_v2": (c_int, [c_void_p]),
    "cuCtxPopCurrent_v2": (c_int, [POINTER(c_void_p)]),
    "cuModuleLoadDataEx": (c_int, [POINTER(c_void_p), c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)]),
    "cuModuleGetFunction": (c_int, [POINTER(c_void_p), c_void_p, c_char_p]),
    "cuFuncSetAttribute": (c_int, [c_void_p, c_int, c_int]),
    "cuLaunchKernel": (c_int, None),
}


def _text(lib: ctypes.CDLL, code: int) -> str:
    words = []
    for name in ("cuGetErrorName", "cuGetErrorString"):
        text = c_char_p()
        known = getattr(lib, name)(code, ctypes.byref(text)) == 0 and text.value
        words.append(text.value.decode(errors="replace") if known and text.value else "unknown code")
    return ": ".join(words)


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
        lib.call("starting the driver", "cuInit", 0)
        lib.call("counting devices", "cuDeviceGetCount", ctypes.byref(count))
    except DeviceError as error:
        raise MissingError(str(error)) from error
    if not count.value:
        raise MissingError("the driver has no device")
    return lib


class NvidiaRuntime:
    """One device by its ordinal, in its primary context, which is the one that torch works in."""

    def __init__(self, index: int, target: str) -> None:
        """Retain the context, for the life of the process.

        Raises:
            MissingError: no driver, or no device at all.
            DeviceError: there is no device of this ordinal, or it has no context to give.
        """
        self.target = target
        self._index = index
        self._lib = library()
        self._device, self._context = c_int(), c_void_p()
        what = f"device {index}"
        self._lib.call(what, "cuDeviceGet", ctypes.byref(self._device), index)
        self._lib.call(what, "cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)

    def load(self, code: Image) -> DriverFunction:
        """Have the driver compile PTX; its complaints are in the error."""
        name, entry = code.instance.name, code.instance.entry
        module, function = c_void_p(), c_void_p()
        with self._current():
            self._load_module(module, code.image, name)
            what = f"{name} on device {self._index}"
            self._lib.call(what, "cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        return DriverFunction(
            name,
            self._lib,
            "cuLaunchKernel",
            function.value or 0,
            lds=_STATIC_LDS,
            raise_lds=self._raise_lds,
            mend=self._mend,
            kept=code.image,
            early_name=_EARLY_LAUNCH if self._launches_early() else "",
        )

    def facts(self) -> DeviceFacts:
        """What the driver says."""
        name, version = ctypes.create_string_buffer(256), self._version()
        self._lib.call(f"device {self._index}", "cuDeviceGetName", name, len(name), self._device)
        return DeviceFacts(
            name=name.value.decode(errors="replace"),
            compute_units=self._attribute(_COMPUTE_UNITS),
            wave_size=self._attribute(_WAVE_SIZE),
            lds_bytes=self._attribute(_LDS_BYTES),
            driver=f"CUDA {version // 1000}.{version % 1000 // 10}",
        )

    def _version(self) -> int:
        """Of the driver: 1000 times the major number and 10 times the minor one."""
        version = c_int()
        self._lib.call(f"device {self._index}", "cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def _launches_early(self) -> bool:
        return self._lib.has(_EARLY_LAUNCH) and self._version() >= _EARLY_SINCE

    def _attribute(self, number: int) -> int:
        value = c_int()
        what = f"attribute {number} of device {self._index}"
        self._lib.call(what, "cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    @contextmanager
    def _current(self) -> Iterator[None]:
        """This device's context for a while; the thread's own comes back."""
        what = f"device {self._index}"
        self._lib.call(what, "cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._lib.call(what, "cuCtxPopCurrent_v2", ctypes.byref(c_void_p()))

    def _load_module(self, module: c_void_p, ptx: bytes, name: str) -> None:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        text = ptx if ptx.endswith(b"\0") else ptx + b"\0"  # the driver reads up to the zero
        try:
            self._lib.call(
                f"{name} on device {self._index}",
                "cuModuleLoadDataEx",
                ctypes.byref(module),
                text,
                len(options),
                options,
                values,
            )
        except DeviceError as error:
            said = log.value.decode(errors="replace").strip()
            raise DeviceError(f"{error}" + (f"\n{said}" if said else ""), error.code) from None

    def _raise_lds(self, handle: int, size: int) -> None:
        what = f"{size} bytes of dynamic local memory on device {self._index}"
        self._lib.call(what, "cuFuncSetAttribute", handle, _MAX_DYNAMIC_LDS, size)

    def _mend(self, code: int) -> bool:
        """A thread that made no CUDA call yet has no context; any other one is the caller's to choose."""
        if code != _INVALID_CONTEXT:
            return False
        current = c_void_p()
        self._lib.call("this thread", "cuCtxGetCurrent", ctypes.byref(current))
        if current.value:
            return False
        self._lib.call("this thread", "cuCtxSetCurrent", self._context)
        return True

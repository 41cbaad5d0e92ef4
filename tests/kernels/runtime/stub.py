"""Builds the stub drivers, and makes the runtimes of this package load them in place of the real ones."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from rocade_kernels.instances import Instance
from rocade_kernels.runtime import _amd, _devices, _nvidia

MODULES: dict[str, ModuleType] = {"amd": _amd, "nvidia": _nvidia}
TARGETS = {"amd": "gfx942", "nvidia": "sm_90"}
LOAD = {"amd": "hipModuleLoadData", "nvidia": "cuModuleLoadDataEx"}
LAUNCH = {"amd": "hipModuleLaunchKernel", "nvidia": "cuLaunchKernel"}


class Code(NamedTuple):
    """What a runtime needs of compiled code."""

    instance: Instance
    image: bytes


def code(vendor: str, kernel: str = "merge", image: bytes = b"the code") -> Code:
    """Some code for a vendor's target."""
    return Code(Instance(kernel, TARGETS[vendor], "bf16"), image)


class Stub:
    """The library's own functions for tests: what was called, and what is to fail."""

    def __init__(self, vendor: str, path: Path) -> None:
        self.vendor, self.path = vendor, path
        self._lib = ctypes.CDLL(str(path))
        self._lib.stub_calls.restype = ctypes.c_char_p
        self._lib.stub_block.restype = ctypes.POINTER(ctypes.c_ubyte)
        self._lib.stub_config.restype = ctypes.POINTER(ctypes.c_ubyte)

    def reset(self) -> None:
        """Forget what was called; nothing fails; two devices; no current one."""
        self._lib.stub_reset()
        self._lib.stub_current(0)

    @property
    def calls(self) -> list[str]:
        """One line a call: name and what it was given."""
        return list(self._lib.stub_calls().decode().splitlines())

    def count(self, name: str) -> int:
        """How often a function was called."""
        return sum(line.split()[0] == name for line in self.calls)

    def fail(self, name: str, code: int, times: int = 1) -> None:
        """Let the next calls of a function return a code."""
        self._lib.stub_fail(name.encode(), code, times)

    def devices(self, count: int) -> None:
        """How many devices there are."""
        self._lib.stub_devices(count)

    def version(self, value: int) -> None:
        """What CUDA's driver says its version is."""
        self._lib.stub_version(value)

    def current(self, value: int) -> None:
        """Device or context of this thread."""
        self._lib.stub_current(value)

    def record(self, on: bool) -> None:
        """Whether calls are written down."""
        self._lib.stub_record(on)

    def block(self, size: int) -> bytes:
        """What the last launch's argument pointed to; 32 bytes are kept."""
        return bytes(self._lib.stub_block()[:size])

    @property
    def config(self) -> tuple[bytes, bytes]:
        """The last launch's CUlaunchConfig, and the attribute that it points to."""
        both = bytes(self._lib.stub_config()[: 56 + 72])
        return both[:56], both[56:]


@functools.cache
def _build(vendor: str, *defines: str) -> Path:
    compiler = next((c for c in ("g++", "clang++") if shutil.which(c)), None)
    command = [compiler] if compiler else ["python", "-m", "ziglang", "c++"]
    path = Path(tempfile.mkdtemp(prefix="rocade-stub-")) / f"lib{vendor}.so"
    define = [*(["-DSTUB_CUDA"] if vendor == "nvidia" else []), *(f"-D{name}" for name in defines)]
    source = Path(__file__).with_name("stub.cpp")
    flags = ["-std=c++20", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, *flags, *define, str(source), "-o", str(path)], check=True)
    return path


def install(vendor: str, monkeypatch: pytest.MonkeyPatch, *defines: str) -> Stub:
    """The stub in place of a vendor's driver, in a process that has used no device yet."""
    stub = Stub(vendor, _build(vendor, *defines))
    stub.reset()
    module = MODULES[vendor]
    monkeypatch.setattr(module, "NAMES", (str(stub.path),))
    monkeypatch.setattr(module, "_library", functools.cache(module._library.__wrapped__))
    monkeypatch.setattr(_devices, "_devices", {})
    monkeypatch.setattr(_devices, "_forked", False)
    return stub

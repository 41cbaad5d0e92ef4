"""Builds libraries that stand for AITER's, and reads what their functions were called with.

`install(folder, key, version)` puts one where the search will find it; `Stub` talks to it. It needs g++,
since AITER's interface is made of libstdc++'s types.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests import needs

from rocade_kernels.aiter.names import VariantKey, file_name
from rocade_kernels.aiter.versions import FWD_0_1_7, FWD_0_1_10, require

VERSIONS = ("0.1.7.post2.dev18", "0.1.10", "0.1.14", "0.1.20")


def abi(version: str) -> int:
    """The stub's number for what a version exports."""
    known = require(version)
    if known.prefill is None:
        return 1001
    return {FWD_0_1_7: 7, FWD_0_1_10: 10}.get(known.forward, 11)


@functools.cache
def _compiled(number: int, defines: tuple[str, ...]) -> Path:
    path = Path(tempfile.mkdtemp(prefix="rocade-aiter-stub-")) / "stub.so"
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC"]
    source = Path(__file__).with_name("stub.cpp")
    subprocess.run(
        [
            "g++",
            *flags,
            f"-DABI={number}",
            *(f"-D{define}" for define in defines),
            str(source),
            "-o",
            str(path),
        ],
        check=True,
    )
    return path


def compiled(version: str, defines: Sequence[str] = ()) -> Path:
    """A library with everything that a version exports; skips the test without g++.

    Args:
        version: of AITER.
        defines: macros that stub.cpp explains, as `COMPUTE` and `PAGE_SIZES={1,16}`.
    """
    if shutil.which("g++") is None:
        needs.missing("g++ is not installed: AITER's interface is made of libstdc++'s types")
    return _compiled(abi(version), tuple(defines))


def install(folder: Path, key: VariantKey, version: str, defines: Sequence[str] = ()) -> Path:
    """Put the stub of a variant into a folder, under AITER's name for it; `defines` as in `compiled`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(key, version)
    shutil.copy(compiled(version, defines), path)
    path.chmod(0o644)
    return path


class Stub:
    """A stub in this process. The loader that opens the same path calls the same one."""

    def __init__(self, path: Path) -> None:
        self._lib = ctypes.CDLL(str(path))
        self._lib.stub_last.restype = ctypes.c_char_p
        self._lib.stub_answer.argtypes = [ctypes.c_float]
        self._lib.stub_compute.argtypes = [ctypes.c_bool]

    @property
    def calls(self) -> int:
        """How often its functions were called."""
        return int(self._lib.stub_calls())

    @property
    def last(self) -> dict[str, str]:
        """Fields of the argument struct, of the stream's struct, and parameters, of the last call.

        Numbers as C++ prints them, addresses in decimal, `drop_seed_offset` as the index of the variant.
        """
        lines = self._lib.stub_last().decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def destroyed(self) -> int:
        """Objects that went out of scope in its functions, by a return or by an exception."""
        return int(self._lib.stub_destroyed())

    @property
    def uncaught(self) -> int:
        """Exceptions of this thread that libstdc++ takes to be on their way."""
        return int(self._lib.stub_uncaught())

    @property
    def alive(self) -> int:
        """Exceptions of kind 6 that were not destroyed."""
        return int(self._lib.stub_alive())

    def answer(self, value: float) -> None:
        """What its functions return; below 0 means that there is no kernel."""
        self._lib.stub_answer(value)

    def throw(self, kind: int) -> None:
        """0: no more; 1: std::runtime_error; 2: an int; 3: a class whose second base is std::exception.

        4: a std::runtime_error that was stored; 5: a std::out_of_range that was caught and thrown again;
        6: one of a class whose objects are counted.
        """
        self._lib.stub_throw(kind)

    def compute(self, on: bool = True) -> None:
        """Whether its functions read the tensors, which must be the CPU's, and write output and natural LSE.

        A row that sees no key gets NaN. Calls that the file's name rules out compute nothing and return -1.
        """
        self._lib.stub_compute(on)

"""The guard that exceptions of AITER end in, whatever C++ library its compiler links into the loader."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import needs
from tests.kernels.aiter import stub
from tests.kernels.aiter.call_cases import Case

from rocade_kernels import _cache, _cpu_build
from rocade_kernels.aiter.library import CALL, TEXT_BYTES
from rocade_kernels.aiter.names import Family, entry

OK, NO_KERNEL, THREW = 0, 2, 3
VERSION = "0.1.20"
KEY = Case("bf16", causal=False, window_left=-1, has_cap=False, has_lse=False, page_size=0).key(
    Family.MHA_FWD
)
Built = Callable[[str], ctypes.CDLL]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """`built(name)`: the loader alone, by the compiler whose command contains the name."""

    def build(name: str) -> ctypes.CDLL:
        known = [*_cpu_build.compilers(), *filter(None, [_cpu_build.zig()])]
        compiler = next((each for each in known if name in each.command[0]), None)
        if compiler is None:
            needs.missing(f"no {name} is installed")
        path = tmp_path_factory.mktemp(name.strip("/")) / "loader.so"
        sources = map(str, sorted((_cpu_build.SOURCES / "aiter" / "loader").glob("*.cpp")))
        flags = [*_cpu_build.FLAGS, "-shared", *compiler.link_flags]
        _cache.run([*compiler.command, *flags, *sources, "-o", str(path)])
        return ctypes.CDLL(str(path))

    return build


def open_stub(loader: ctypes.CDLL, path: Path) -> int:
    layout, symbol = entry(KEY, VERSION)
    handle = ctypes.c_int64()
    names = str(path).encode(), symbol.encode(), layout.encode()
    assert loader.rk_aiter_open(*names, ctypes.byref(handle), None, ctypes.c_int64(0)) == OK
    return handle.value


@pytest.mark.parametrize("compiler", ["g++", "zig"])
def test_exceptions_end_in_the_guard(compiler: str, built: Built, tmp_path: Path) -> None:
    path = stub.install(tmp_path, KEY, VERSION)  # which skips without g++
    loader, told, text = built(compiler), stub.Stub(path), ctypes.create_string_buffer(TEXT_BYTES)
    handle = ctypes.c_int64(open_stub(loader, path))

    def run(kind: int) -> tuple[int, str]:
        told.throw(kind)
        packed = CALL.pack(0, 1, *[0] * 36, -1, 1.0, 0.0)
        status = loader.rk_aiter_run(handle, packed, text, ctypes.c_int64(TEXT_BYTES))
        return status, text.value.decode() if status == THREW else ""

    for _ in range(3):
        assert run(0) == (OK, "")
        assert run(1) == (THREW, "std::runtime_error: the stub was told to throw")
        assert run(2) == (THREW, "int")
        assert run(3) == (THREW, "(anonymous namespace)::Odd")
        assert run(4) == (THREW, "std::runtime_error")
        assert run(5) == (THREW, "std::out_of_range: caught once")
        assert run(6) == (THREW, "(anonymous namespace)::Counted: counted")
    assert told.destroyed == told.calls == 21
    assert told.uncaught == told.alive == 0
    told.throw(0)
    told.answer(-1)
    assert run(0) == (NO_KERNEL, "")


def test_text_is_cut_to_the_room_there_is(built: Built, tmp_path: Path) -> None:
    path = stub.install(tmp_path, KEY, VERSION)
    loader, told = built("g++"), stub.Stub(path)
    handle = ctypes.c_int64(open_stub(loader, path))
    told.throw(1)
    packed = CALL.pack(0, 1, *[0] * 36, -1, 1.0, 0.0)
    for room in (0, 1, 5):
        text = ctypes.create_string_buffer(b"#" * 8, 9)
        assert loader.rk_aiter_run(handle, packed, text, ctypes.c_int64(room)) == THREW
        assert text.raw == b"std:\0###\0" if room == 5 else text.raw[room:] == b"#" * (8 - room) + b"\0"

"""A library is refused, with the reason, unless it is whole, of this machine, and exports what is called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests import needs

from rocade_kernels.aiter.elf import check_library
from rocade_kernels.aiter.errors import LibraryError

SOURCE = """
extern "C" int wanted(int x) { return x + 1; }
extern "C" int missing(int);
extern "C" int caller(int x) { return missing(x); }
static int table[4096] = {1};
extern "C" int *data() { return table; }
"""
CXX = shutil.which("g++")
pytestmark = needs.unless(CXX is not None, "g++ is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "source.cpp").write_text(SOURCE)
    path = folder / "library.so"
    subprocess.run([str(CXX), "-shared", "-fPIC", "-o", path, folder / "source.cpp"], check=True)
    return path


def test_a_whole_library_with_the_symbol_passes(library: Path) -> None:
    check_library(library, "wanted")


def test_a_symbol_that_is_only_asked_for_is_not_exported(library: Path) -> None:
    with pytest.raises(LibraryError, match=r"does not export missing.*another AITER version"):
        check_library(library, "missing")


def test_any_shorter_file_is_refused_as_truncated(library: Path, tmp_path: Path) -> None:
    whole = library.read_bytes()
    path = tmp_path / "library.so"
    for size in sorted({64, len(whole) // 2, len(whole) - 1, *range(64, len(whole), 97)}):
        path.write_bytes(whole[:size])
        with pytest.raises(LibraryError, match=f"truncated.* {size} bytes; remove it"):
            check_library(path, "wanted")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"\x7fELF", "no 64-bit ELF"), (b"#!/bin/sh\n" * 99, "no 64-bit ELF")],
)
def test_what_is_no_library_says_so(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(content)
    with pytest.raises(LibraryError, match=words):
        check_library(path, "wanted")


def test_another_machine_is_named(library: Path, tmp_path: Path) -> None:
    content = bytearray(library.read_bytes())
    content[18] = 0xF3  # RISC-V
    path = tmp_path / "library.so"
    path.write_bytes(content)
    with pytest.raises(LibraryError, match="machine 243"):
        check_library(path, "wanted")


def test_an_absent_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="cannot be read: No such file"):
        check_library(tmp_path / "library.so", "wanted")


def test_overwritten_headers_never_raise_anything_else(library: Path, tmp_path: Path) -> None:
    whole = library.read_bytes()
    path = tmp_path / "library.so"
    for at in range(24, 64):
        content = bytearray(whole)
        content[at] ^= 0xFF
        path.write_bytes(content)
        try:
            check_library(path, "wanted")
        except LibraryError:
            continue

"""Says why a file is no library that this process may load, before the dynamic linker reads a byte of it.

A library that was cut short maps without an error, and the first touch of a missing page kills the process.
"""

from __future__ import annotations

import mmap
import platform
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocade_kernels.aiter.errors import LibraryError

_MAGIC = b"\x7fELF"
_CLASS64_LITTLE = b"\x02\x01"
_HEADER_BYTES = 64
_SHARED = 3  # e_type ET_DYN
_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183}
_LOAD = 1  # p_type PT_LOAD
_NO_BYTES = 8  # sh_type SHT_NOBITS: has a size, and no bytes in the file
_DYNAMIC_SYMBOLS = 11  # sh_type SHT_DYNSYM
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


class _Section(NamedTuple):
    """What is asked of a section header."""

    kind: int
    offset: int
    size: int
    link: int


def check_library(path: Path, symbol: str) -> None:
    """Raise `LibraryError` unless `path` is a whole shared library of this machine that exports `symbol`.

    Whole means that every segment and section, and the tables of both, end inside the file.
    """
    try:
        with path.open("rb") as file:
            if not file.seek(0, 2):
                raise LibraryError(f"{path} is empty; remove it to have it built again")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _check(path, data, symbol)
    except OSError as error:
        raise LibraryError(f"{path} cannot be read: {error.strerror}") from error


def _check(path: Path, data: mmap.mmap, symbol: str) -> None:
    if len(data) < _HEADER_BYTES or data[:4] != _MAGIC or data[4:6] != _CLASS64_LITTLE:
        raise LibraryError(f"{path} is no 64-bit ELF library; remove it to have it built again")
    kind, machine = struct.unpack_from("<HH", data, 16)
    here = platform.machine().lower()
    if kind != _SHARED or machine != _MACHINES.get(here, machine):
        raise LibraryError(f"{path} is no shared library for {here} (ELF type {kind}, machine {machine})")
    try:
        sections = list(_sections(data))
        whole = max(_ends(data, sections)) <= len(data)
    except (struct.error, OverflowError):
        whole = False
    if not whole:
        raise LibraryError(
            f"{path} is truncated: parts of it lie past its end at {len(data)} bytes; remove it to have it "
            "built again"
        )
    if symbol.encode() not in _exported(data, sections):
        raise LibraryError(
            f"{path} does not export {symbol}, so it is of another AITER version or family; "
            f"`nm -D {path}` lists what it exports"
        )


def _sections(data: mmap.mmap) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    if not count:  # stripped of its section table: nothing can be looked up in it
        return
    for index in range(count):
        _, kind, _, _, offset, length, link, *_ = _SECTION.unpack_from(data, table + index * size)
        yield _Section(kind, offset, length, link)


def _ends(data: mmap.mmap, sections: list[_Section]) -> Iterator[int]:
    """Where each part of the file ends."""
    yield _HEADER_BYTES
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _, offset, _, _, length, *_ = _SEGMENT.unpack_from(data, table + index * size)
        if kind == _LOAD:
            yield offset + length
    yield from (section.offset + section.size for section in sections if section.kind != _NO_BYTES)


def _exported(data: mmap.mmap, sections: list[_Section]) -> set[bytes]:
    """Names of the dynamic symbols that are defined in the library."""
    names = set()
    for table in sections:
        if table.kind != _DYNAMIC_SYMBOLS or table.link >= len(sections):
            continue
        strings = sections[table.link]
        for at in range(table.offset, table.offset + table.size - _SYMBOL.size + 1, _SYMBOL.size):
            name, _, _, section, _, _ = _SYMBOL.unpack_from(data, at)
            if section:
                start = strings.offset + name
                names.add(data[start : data.find(b"\0", start)])
    return names

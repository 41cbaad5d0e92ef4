"""Reads the metadata note of an AMD code object: a little ELF, a little MessagePack. It runs nothing."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from rocade_kernels._cache import BuildError

_HEADER = struct.Struct("<4s2B10xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_EM_AMDGPU, _ET_DYN = 224, 3
_SHT_NOTE, _NT_METADATA = 7, 32


class ImageError(BuildError):
    """Compiled code that is torn, is for another target or kernel, or breaks a rule of this package."""


def kernel_notes(image: bytes) -> tuple[str, list[dict[str, Any]]]:
    """The target (`amdgcn-amd-amdhsa--<name>`) and one table of notes for each kernel.

    Raises:
        ImageError: this is no whole code object.
    """
    for kind, owner, content in _notes(image):
        if kind == _NT_METADATA and owner == b"AMDGPU":
            tree = unpack(content)
            if isinstance(tree, dict):
                kernels = tree.get("amdhsa.kernels")
                if isinstance(kernels, list) and all(isinstance(kernel, dict) for kernel in kernels):
                    return str(tree.get("amdhsa.target", "")), kernels
    raise ImageError("it has no metadata of kernels")


def _notes(image: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    for kind, offset, size in _sections(image):
        at, end = offset, offset + size
        while kind == _SHT_NOTE and at + _NOTE.size <= end:
            name_size, content_size, note_kind = _NOTE.unpack_from(image, at)
            name = at + _NOTE.size
            content = name + (name_size + 3) // 4 * 4
            at = content + (content_size + 3) // 4 * 4
            if at > end:
                raise ImageError("a note is longer than its section")
            yield note_kind, image[name : name + name_size].rstrip(b"\0"), image[content:][:content_size]


def _sections(image: bytes) -> Iterator[tuple[int, int, int]]:
    """Type, offset and size of every section; all of them lie in the file."""
    if len(image) < _HEADER.size:
        raise ImageError(f"{len(image)} bytes are no code object")
    header = _HEADER.unpack_from(image)
    if header[:3] != (b"\x7fELF", _CLASS_64, _LITTLE_ENDIAN) or header[3:5] != (_ET_DYN, _EM_AMDGPU):
        raise ImageError("it is no linked AMD code object")
    table, entry_size, count = header[8], header[13], header[14]
    if entry_size != _SECTION.size or table + count * entry_size > len(image):
        raise ImageError("it ends before its section table does")
    for index in range(count):
        fields = _SECTION.unpack_from(image, table + index * entry_size)
        kind, offset, size = fields[1], fields[4], fields[5]
        if kind == _SHT_NOTE and offset + size > len(image):
            raise ImageError("it ends before its notes do")
        yield kind, offset, size


def unpack(data: bytes) -> object:
    """The MessagePack value at the start of `data`; `ImageError` when it is torn."""
    try:
        return _Reader(data).value()
    except (struct.error, IndexError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise ImageError(f"its metadata is torn: {error}") from error


class _Reader:
    """Reads values one after the other; short data raises what `unpack` turns into its error."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> int | float:
        """A number in `struct`'s notation."""
        packed = struct.Struct(">" + form)
        value: int | float = packed.unpack_from(self.data, self.at)[0]
        self.at += packed.size
        return value

    def count(self, form: str) -> int:
        """A number that says how much follows."""
        return int(self.number(form))

    def bytes(self, size: int) -> bytes:
        """`size` raw bytes."""
        end = self.at + size
        if end > len(self.data):
            raise IndexError("a string is longer than the data")
        start, self.at = self.at, end
        return self.data[start:end]

    def text(self, size: int) -> str:
        """A string of `size` bytes."""
        return self.bytes(size).decode()

    def array(self, count: int) -> list[object]:
        """`count` values."""
        return [self.value() for _ in range(count)]

    def table(self, count: int) -> dict[Any, object]:
        """`count` pairs of key and value."""
        return {self.value(): self.value() for _ in range(count)}

    def short(self, tag: int) -> object:
        """A table or array whose size is in the tag."""
        return self.array(tag & 0x0F) if tag >= 0x90 else self.table(tag & 0x0F)

    def value(self) -> object:
        """The next value, of any type."""
        tag = self.count("B")
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag < 0xC0:
            return self.text(tag & 0x1F) if tag >= 0xA0 else self.short(tag)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag in _NUMBERS:
            return self.number(_NUMBERS[tag])
        if tag in _SIZED:
            form, kind = _SIZED[tag]
            return getattr(self, kind)(self.count(form))
        raise TypeError(f"MessagePack type 0x{tag:02x}")


_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
# By consecutive tags: numbers, and the form of the length before strings, arrays and tables.
_NUMBERS = dict(zip([*range(0xCA, 0xD4)], "fdBHIQbhiq", strict=True))
_SIZED = {
    **{0xC4 + i: (form, "bytes") for i, form in enumerate("BHI")},
    **{0xD9 + i: (form, "text") for i, form in enumerate("BHI")},
    **{0xDC + i: (form, "array") for i, form in enumerate("HI")},
    **{0xDE + i: (form, "table") for i, form in enumerate("HI")},
}

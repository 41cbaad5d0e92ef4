"""A reader of AMDGPU code objects (ELF64): sections, symbols, notes, load segments, relocations."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")
_RELA = struct.Struct("<QQq")

MAGIC = b"\x7fELF"
EM_AMDGPU = 224
ET_DYN = 3
SHT_SYMTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 4, 7, 8, 11
MAX_EMPTY_BYTES = 1 << 30  # a malformed file must not ask for all memory
PT_LOAD = 1
PF_WRITE = 2
NT_AMDGPU_METADATA = 32
R_AMDGPU_ABS64, R_AMDGPU_RELATIVE64 = 3, 13


class ElfError(ValueError):
    """The file is not an AMDGPU code object that can be run. The text says what was found instead."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section header: where it lies in the file and in memory."""

    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A load segment: `file_size` bytes at `offset` go to `address`; the rest of `size` is zero."""

    offset: int
    address: int
    file_size: int
    size: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named address."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A 64-bit word to fill in at load: the address of a symbol ("" is the image itself) plus an addend."""

    address: int
    symbol: str
    addend: int


class Elf:
    """One linked code object. Every table is checked against the size of the file when it is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:4] != MAGIC:
            raise ElfError(
                "it does not start with the ELF magic bytes; expected a code object, an offload bundle, or "
                "assembly in a file named .s (source must be compiled first)"
            )
        if len(data) < _HEADER.size or data[4] != 2 or data[5] != 1:
            raise ElfError("only 64-bit little-endian ELF files are read")
        header = _HEADER.unpack_from(data)
        self._check_kind(header[1], header[2])
        self.flags = header[7]
        self._segment_table = (header[5], header[9], header[10])
        self.sections = self._read_sections(header[6], header[11], header[12], header[13])

    @staticmethod
    def _check_kind(kind: int, machine: int) -> None:
        if machine != EM_AMDGPU:
            raise ElfError(f"its machine is {machine}, an AMDGPU code object says {EM_AMDGPU}")
        if kind != ET_DYN:
            raise ElfError(
                "it is an object file that is not linked; link it first: ld.lld -shared in.o -o out.co"
            )

    def _slice(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > len(self.data):
            raise ElfError(f"{what} ends at byte {offset + size}, the file has {len(self.data)}")
        return self.data[offset : offset + size]

    def _read_sections(self, offset: int, entry: int, count: int, names: int) -> list[Section]:
        if not count:
            return []
        if entry != _SECTION.size or names >= count:
            raise ElfError("its section table is malformed")
        table = self._slice(offset, entry * count, "the section table")
        rows = list(_SECTION.iter_unpack(table))
        strings = self._slice(rows[names][4], rows[names][5], "the table of section names")
        return [Section(_string(strings, r[0]), r[1], r[3], r[4], r[5], r[6]) for r in rows]

    def section(self, name: str) -> Section:
        """The section of this name.

        Raises:
            ElfError: there is none.
        """
        for section in self.sections:
            if section.name == name:
                return section
        raise ElfError(f"it has no section {name}")

    def content(self, section: Section) -> bytes:
        """The bytes of a section; zeros for one that takes no room in the file."""
        if section.type == SHT_NOBITS:
            if section.size > MAX_EMPTY_BYTES:
                raise ElfError(f"section {section.name} asks for {section.size} bytes of zeros")
            return bytes(section.size)
        return self._slice(section.offset, section.size, f"section {section.name}")

    def segments(self) -> list[Segment]:
        """The load segments in the order of the file."""
        offset, entry, count = self._segment_table
        if count and entry != _SEGMENT.size:
            raise ElfError("its program header table is malformed")
        rows = _SEGMENT.iter_unpack(self._slice(offset, entry * count, "the program header table"))
        return [Segment(r[2], r[3], r[5], r[6], bool(r[1] & PF_WRITE)) for r in rows if r[0] == PT_LOAD]

    def segment_bytes(self, segment: Segment) -> bytes:
        """What the file holds of a segment."""
        return self._slice(segment.offset, segment.file_size, f"the segment at 0x{segment.address:x}")

    def _symbol_table(self, section: Section) -> list[Symbol]:
        if section.link >= len(self.sections):
            raise ElfError(f"{section.name} names a string table that is not there")
        strings = self.content(self.sections[section.link])
        table = self.content(section)
        if len(table) % _SYMBOL.size:
            raise ElfError(f"{section.name} is no whole number of symbols")
        return [Symbol(_string(strings, r[0]), r[4], r[5]) for r in _SYMBOL.iter_unpack(table)]

    def symbols(self) -> dict[str, Symbol]:
        """All named symbols. `.symtab` may be stripped, so `.dynsym` is read, too."""
        found: dict[str, Symbol] = {}
        for section in self.sections:
            if section.type in (SHT_SYMTAB, SHT_DYNSYM):
                found.update((s.name, s) for s in self._symbol_table(section) if s.name)
        return found

    def notes(self) -> Iterator[tuple[str, int, bytes]]:
        """Owner, type and content of every note."""
        for section in self.sections:
            if section.type == SHT_NOTE:
                yield from _notes(self.content(section))

    def metadata(self) -> bytes:
        """The MessagePack text of the AMDGPU metadata note.

        Raises:
            ElfError: there is none (code object version 2 wrote another form).
        """
        for owner, kind, content in self.notes():
            if owner == "AMDGPU" and kind == NT_AMDGPU_METADATA:
                return content
        raise ElfError("it has no AMDGPU metadata note (code object version 3 or later)")

    def relocations(self) -> list[Relocation]:
        """What the loader fills in.

        Raises:
            ElfError: a relocation has a type that is not known here.
        """
        found: list[Relocation] = []
        for section in self.sections:
            if section.type != SHT_RELA or not section.size:
                continue
            if section.link >= len(self.sections):
                raise ElfError(f"{section.name} names a symbol table that is not there")
            names = [s.name for s in self._symbol_table(self.sections[section.link])] if section.link else []
            table = self.content(section)
            if len(table) % _RELA.size:
                raise ElfError(f"{section.name} is no whole number of relocations")
            for address, info, addend in _RELA.iter_unpack(table):
                found.append(_relocation(address, info, addend, names))
        return found


def _relocation(address: int, info: int, addend: int, names: list[str]) -> Relocation:
    kind, symbol = info & 0xFFFFFFFF, info >> 32
    if kind == R_AMDGPU_RELATIVE64:
        return Relocation(address, "", addend)
    if kind == R_AMDGPU_ABS64 and symbol < len(names):
        return Relocation(address, names[symbol], addend)
    raise ElfError(f"relocation type {kind} at 0x{address:x} is not known")


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if offset > len(table) or end < 0:
        raise ElfError(f"a name at offset {offset} of a string table does not end")
    return table[offset:end].decode("utf-8", "replace")


def _notes(content: bytes) -> Iterator[tuple[str, int, bytes]]:
    at = 0
    while at + _NOTE.size <= len(content):
        name_size, size, kind = _NOTE.unpack_from(content, at)
        start = at + _NOTE.size
        data = start + (name_size + 3) // 4 * 4
        if data + size > len(content):
            raise ElfError("a note is longer than its section")
        owner = content[start : start + name_size].rstrip(b"\0").decode("ascii", "replace")
        yield owner, kind, content[data : data + size]
        at = data + (size + 3) // 4 * 4

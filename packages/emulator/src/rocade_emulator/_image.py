"""A code object as a loader puts it in memory: its segments at their distances, relocations filled in."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rocade_emulator._elf import Elf, ElfError

PAGE = mmap.PAGESIZE
MAX_IMAGE_BYTES = 1 << 30  # a malformed file must not ask for all memory


@dataclass(frozen=True, slots=True)
class Piece:
    """Memory of one segment: device address (the host's), bytes, and whether kernels may write it."""

    address: int
    size: int
    writable: bool


class Image:
    """The memory of a loaded code object. It lives as long as this object.

    Global variables keep what a kernel wrote to them from one launch to the next, as on a GPU.
    """

    def __init__(self, elf: Elf) -> None:
        self._segments = elf.segments()
        size = max((s.address + s.size for s in self._segments), default=0)
        if not 0 < size <= MAX_IMAGE_BYTES:
            raise ElfError(f"its load segments take {size} bytes of memory")
        self._memory = mmap.mmap(-1, (size + PAGE - 1) // PAGE * PAGE)
        self._view = (ctypes.c_char * len(self._memory)).from_buffer(self._memory)
        self.base = ctypes.addressof(self._view)
        for segment in self._segments:
            content = elf.segment_bytes(segment)
            self._memory[segment.address : segment.address + len(content)] = content
        self._relocate(elf)

    def _relocate(self, elf: Elf) -> None:
        relocations = elf.relocations()
        symbols = elf.symbols() if relocations else {}
        for relocation in relocations:
            if relocation.symbol and relocation.symbol not in symbols:
                raise ElfError(f"symbol {relocation.symbol} is defined in no code object")
            if not 0 <= relocation.address <= len(self._memory) - 8:
                raise ElfError(f"a relocation at 0x{relocation.address:x} lies outside the image")
            target = symbols[relocation.symbol].address if relocation.symbol else 0
            word = (self.base + target + relocation.addend) & (2**64 - 1)
            struct.pack_into("<Q", self._memory, relocation.address, word)

    def pieces(self) -> Iterator[Piece]:
        """The segments in memory."""
        for segment in self._segments:
            yield Piece(self.base + segment.address, segment.size, segment.writable)

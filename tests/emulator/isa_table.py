"""The emulator's instruction table as the tests see it: one Row per mnemonic, read through the C ABI."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from rocade_emulator import _native

FORMATS = [
    "sop1",
    "sop2",
    "sopk",
    "sopc",
    "sopp",
    "smem",
    "vop1",
    "vop2",
    "vopc",
    "vop3",
    "vop3p",
    "mfma",
    "ds",
    "flat",
    "mubuf",
]
TYPES = [
    "none",
    "b32",
    "f32",
    "b16",
    "f16",
    "bf16",
    "b64",
    "f64",
    "pk_b16",
    "pk_f16",
    "pk_f32",
    "mask",
    "b96",
    "b128",
    "b256",
    "b512",
    "b1024",
    "b192",
    "half",
]
REGISTERS = {
    **dict.fromkeys(TYPES, 1),
    **dict.fromkeys(("b64", "f64", "pk_f32", "mask"), 2),
    "none": 0,
    "b96": 3,
    "b128": 4,
    "b192": 6,
    "b256": 8,
    "b512": 16,
    "b1024": 32,
}
TARGETS = ("gfx942", "gfx950")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `targets` has it, operand types are names out of TYPES."""

    mnemonic: str
    format: str
    opcode: int
    targets: tuple[str, ...]
    dst: str
    dst2: str
    src: tuple[str, ...]

    @property
    def width(self) -> int:
        """Registers of the destination."""
        return REGISTERS[self.dst]


@functools.cache
def rows() -> tuple[Row, ...]:
    """Every row of the table, in table order."""
    lib = _native.library()
    name, fmt, opcode, target = ctypes.c_char_p(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    types = (ctypes.c_uint8 * 7)()
    found: list[Row] = []
    refs = (ctypes.byref(name), ctypes.byref(fmt), ctypes.byref(opcode), ctypes.byref(target))
    while not lib.emu_table_row(len(found), *refs):
        assert lib.emu_table_types(len(found), types) == 0
        dst, dst2, *src = (TYPES[t] for t in types)
        having = TARGETS if target.value == 0 else (TARGETS[target.value - 1],)
        assert name.value is not None
        mnemonic = name.value.decode()
        sources = tuple(s for s in src if s != "none")
        found.append(Row(mnemonic, FORMATS[fmt.value], opcode.value, having, dst, dst2, sources))
    return tuple(found)


def rows_of(target: str, *formats: str) -> list[Row]:
    """Rows that a target has, of the named formats (all without a name)."""
    return [row for row in rows() if target in row.targets and (not formats or row.format in formats)]

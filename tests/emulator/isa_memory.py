"""What a memory instruction must do: AMD's pseudo-code on a byte array, lane after lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.emulator import isa_oracle
from tests.emulator.isa_oracle import same
from tests.emulator.isa_run import LANES
from tests.emulator.isa_table import REGISTERS, Row
from tests.emulator.pcode_operations import Memory
from tests.emulator.pcode_values import V

Registers = list[list[int]]  # [lane][register]


@dataclass(slots=True)
class Access:
    """One instruction's operands: byte addresses per lane (None: out of range), offset, data, old result."""

    row: Row
    addresses: list[int | None]
    offset: int
    data: list[int]
    data2: list[int]
    old: list[int]
    lanes: int  # EXEC


def joined(registers: list[int]) -> int:
    """Registers as one number, the first lowest."""
    return sum(word << 32 * k for k, word in enumerate(registers))


def run(access: Access, memory: bytearray, target: str) -> list[int]:
    """Apply to the memory; returns the destination of each lane."""
    text = isa_oracle.library().texts[access.row.mnemonic]
    computes = "Calc" in text or "ADDR_BASE" in text
    out = list(access.old)
    for lane in range(LANES):
        if not access.lanes >> lane & 1:
            continue
        base, target_memory = access.addresses[lane], memory
        if base is None:  # out of a buffer's range: reads zeros, writes nothing
            base, target_memory = 0, bytearray(64)
        values = _values(access, lane, base if computes else base + access.offset)
        values["MEM"] = Memory(target_memory)
        after = isa_oracle.library().run(access.row.mnemonic, values, target)
        if not access.row.width:
            continue
        name = "RETURN_DATA" if "RETURN_DATA" in text else "VDATA"
        bits = 32 * max(REGISTERS[access.row.dst], 1)
        out[lane] = after[name].bits & ((1 << bits) - 1)
    return out


def _values(access: Access, lane: int, address: int) -> dict[str, Any]:
    low, high = access.offset & 255, access.offset >> 8
    loads = access.row.width and len(access.row.src) < 2
    data = V("b", 128, access.data[lane])
    return {
        "ADDR": V("u", 64, address),
        "VADDR": V("u", 64, address),
        "ADDR_BASE": V("u", 32, address),
        "OFFSET": V("u", 32, access.offset),
        "OFFSET0": V("u", 32, low),
        "OFFSET1": V("u", 32, high),
        "DATA": data,
        "DATA2": V("b", 128, access.data2[lane]),
        "VDATA": V("b", 128, access.old[lane]) if loads else data,
        "RETURN_DATA": V("b", 128, access.old[lane]),
        "laneId": V("n", 0, lane),
    }


def _kind(row: Row) -> tuple[str, int]:
    """Type that memory and result are compared as, and its bytes."""
    for kind in ("f64", "f32", "bf16", "f16"):
        if row.mnemonic.endswith(kind):
            return kind, {"f64": 8, "f32": 4}.get(kind, 2)
    return "b8", 1


def equal(row: Row, got: bytes, wanted: bytes) -> bool:
    """Whether two stretches of memory or registers agree; NaNs of a float instruction are all alike."""
    kind, size = _kind(row)
    if got == wanted:
        return True
    parts = range(0, len(got), size)
    pairs = (
        (int.from_bytes(got[at : at + size], "little"), int.from_bytes(wanted[at : at + size], "little"))
        for at in parts
    )
    return all(same(kind, a, b) for a, b in pairs)


def access_bytes(row: Row) -> int:
    """Bytes of memory that one lane reaches."""
    if "atomic" in row.mnemonic:
        return 8 if row.mnemonic.endswith(("_x2", "f64")) else 4
    for name, size in (("dwordx4", 16), ("dwordx3", 12), ("dwordx2", 8), ("dword", 4), ("byte", 1)):
        if name in row.mnemonic:
            return size
    return 2


def without_result(row: Row) -> Row:
    """The row of an atomic that does not return the old value."""
    return Row(row.mnemonic, row.format, row.opcode, row.targets, "none", "none", row.src)

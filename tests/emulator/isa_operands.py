"""Register operands and constants that candidate assembly lines are made of."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

from tests.emulator.isa_table import REGISTERS, Row

INLINE = ("0", "1", "-16", "64", "0.5", "-4.0", "1.0")


LITERAL = "0x3f9df3b6"


SPECIAL = ("vcc_lo", "vcc_hi", "m0", "exec_lo", "exec_hi", "src_scc", "src_vccz", "src_execz", "ttmp3")


SPECIAL64 = ("vcc", "exec", "ttmp[4:5]", "src_shared_base", "src_private_limit")


HALF = {"b16", "f16", "bf16"}


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate. `required`: the assembler must know it, or the row is wrong."""

    row: Row
    text: str
    required: bool = False


class Pick:
    """Register operands for a row, the same in every run: numbers vary, so that fields cannot be mixed up."""

    def __init__(self, row: Row) -> None:
        self.random = random.Random(zlib.crc32(row.mnemonic.encode()))

    def vector(self, kind: str, file: str = "v") -> str:
        """Vector registers, as many as a type takes; the first ones are left for other operands."""
        count = REGISTERS[kind]
        first = self.random.randrange(32, 256 - count) & ~1
        return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"

    def scalar(self, kind: str) -> str:
        """A range of scalar registers, aligned as its width asks."""
        count = REGISTERS[kind]
        align = 1 if count == 1 else 2 if count == 2 else 4
        first = self.random.randrange(0, 100 - count) // align * align
        return f"s{first}" if count == 1 else f"s[{first}:{first + count - 1}]"

    def number(self, *values: object) -> str:
        """One of some values."""
        return str(self.random.choice(values))


def join(mnemonic: str, *operands: str) -> str:
    """A line of assembly; empty operands are left out."""
    return f"{mnemonic} {', '.join(o for o in operands if o)}".strip()

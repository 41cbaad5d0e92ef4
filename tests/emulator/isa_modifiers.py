"""Operand forms with an oracle: what neg, abs, op_sel, SDWA, constants and clamp change."""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulator import isa_oracle
from tests.emulator.isa_inputs import register
from tests.emulator.isa_run import State
from tests.emulator.isa_table import REGISTERS, Row
from tests.emulator.isa_valu import Case, name
from tests.emulator.pcode_values import bits_of, float_of, is_nan, unsigned

WIDTH = {"f32": 32, "f16": 16, "f64": 64, "b16": 16}
SELECTS = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8)}
SELECTS |= {"WORD_0": (0, 16), "WORD_1": (16, 16), "DWORD": (0, 32)}
CONSTANTS = {"0.5": 0.5, "-4.0": -4.0, "1.0": 1.0, "2.0": 2.0}


@dataclass(slots=True)
class Form:
    """A case, and how its result is post-processed: clamp, and where in the register it goes."""

    case: Case
    clamp: bool = False
    high: bool = False  # op_sel of the destination
    part: tuple[int, int] = (0, 32)  # SDWA destination
    unused: str = "UNUSED_PAD"


def signed_source(source: isa_oracle.Source, kind: str, negate: bool, absolute: bool) -> isa_oracle.Source:
    """A source with its sign bit changed."""
    width = WIDTH[kind]

    def read(state: State, lane: int) -> int:
        bits = unsigned(source(state, lane), width)
        bits = unsigned(bits, width - 1) if absolute else bits
        return bits ^ (1 << (width - 1)) if negate else bits

    return read


def part_source(source: isa_oracle.Source, low: int, bits: int, extend: bool = False) -> isa_oracle.Source:
    """Some bits of a source, with zeros or the sign above them."""

    def read(state: State, lane: int) -> int:
        value = unsigned(source(state, lane) >> low, bits)
        return unsigned(value - (1 << bits), 32) if extend and value >> (bits - 1) else value

    return read


def constant_source(text: str, kind: str) -> isa_oracle.Source:
    """An inline constant or a literal as an operand of a type."""
    if text.startswith("0x"):
        bits = int(text, 16)
        return isa_oracle.constant(bits << 32 if kind == "f64" else bits)
    if text in CONSTANTS:
        width = WIDTH.get(kind, 64 if kind == "b64" else 32)
        width = 16 if kind == "b16" else width
        return isa_oracle.constant(bits_of(CONSTANTS[text], width))
    wide = 64 if REGISTERS[kind] == 2 else 32
    return isa_oracle.constant(unsigned(int(text), wide))


def placed(form: Form, bits: int, old: int) -> int:
    """The destination register after a result: clamped, and put where the form says."""
    kind = form.case.row.dst
    if kind in ("f32", "f16", "f64"):
        bits = _output(form, bits, WIDTH[kind])
    if form.high:
        return unsigned(bits, 16) << 16 | old & 0xFFFF
    low, width = form.part
    if width == 32:
        return bits
    value = unsigned(bits, width)
    mask = ((1 << width) - 1) << low
    if form.unused == "UNUSED_PRESERVE":
        return old & ~mask | value << low
    sign = form.unused == "UNUSED_SEXT" and value >> (width - 1)
    above = unsigned(-1 << (low + width), 32) if sign else 0
    return value << low | above


def _output(form: Form, bits: int, width: int) -> int:
    bits = unsigned(bits, width)
    if not form.clamp:
        return bits
    if is_nan(bits, width):
        return 0
    return bits_of(min(max(float_of(bits, width), 0.0), 1.0) + 0.0, width)


def plain_sources(row: Row) -> tuple[list[str], list[isa_oracle.Source]]:
    """Operand texts and readers of a row's vector sources."""
    kinds = row.src[:2] if row.format == "vop2" and len(row.src) == 3 else row.src
    names = [name(kind, k) for k, kind in enumerate(kinds)]
    return names, [isa_oracle.vector(register(kind, k), REGISTERS[kind]) for k, kind in enumerate(kinds)]

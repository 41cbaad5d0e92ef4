"""Operations on the typed values of AMD's pseudo-code: types, casts, constants and operators."""

from __future__ import annotations

import re

import numpy as np
from tests.emulator.pcode_functions import FUNCTIONS
from tests.emulator.pcode_values import (
    IEEE,
    Number,
    V,
    bits_of,
    bits_of_brain,
    brain_float,
    float_of,
    is_nan,
    signed,
    unsigned,
)

TYPE = re.compile(r"(bf|fp|[uifb])(\d+)$")


KINDS = {"u": "u", "i": "i", "f": "f", "b": "b"}


class PcodeError(Exception):
    """Pseudo-code that this interpreter does not understand."""


def type_of(name: str) -> tuple[str, int]:
    """Kind and width of a type suffix like `u32`, `bf16`, `fp8`."""
    match = TYPE.match(name)
    if match is None:
        raise PcodeError(f"type {name}")
    prefix, width = match[1], int(match[2])
    if prefix == "bf":
        return ("g", 16) if width == 16 else ("q", width)
    return ("p", width) if prefix == "fp" else (KINDS[prefix], width)


def number(v: V) -> Number:
    """The number that a value stands for."""
    if v.kind == "i":
        return signed(v.bits, v.width)
    if v.kind == "f":
        return float_of(v.bits, v.width)
    if v.kind == "g":
        return brain_float(v.bits)
    if v.kind == "special":
        return float("nan") if v.width else float("inf")
    return v.bits


def make(kind: str, width: int, x: Number) -> V:
    """A value of a type from a number."""
    if kind == "f":
        return V("f", width, bits_of(float(x), width))
    if kind == "g":
        return V("g", 16, bits_of_brain(float(x)))
    return V(kind, width, int(x) if kind == "n" else unsigned(int(x), width))


def nan_in(width: int, v: V) -> int:
    """A NaN in another width, still quiet or signalling as it was."""
    mantissa, _, exponents = IEEE[width]
    top = ((1 << exponents) - 1) << mantissa
    payload = v.bits >> (IEEE[v.width][0] - 1) & 1
    return (v.bits >> (v.width - 1)) << (width - 1) | top | (1 << (mantissa - 1) if payload else 1)


def cast(kind: str, width: int, v: V) -> V:
    """`32'U(v)`: converts a number, or takes bits as they are."""
    if kind == "f" and v.kind == "f" and is_nan(v.bits, v.width):
        return V("f", width, nan_in(width, v))
    if kind in "fg":
        return V(kind, width, unsigned(v.bits, width)) if v.kind == "b" else make(kind, width, number(v))
    if v.kind in "fg":
        return V(kind, width, unsigned(v.bits, width))
    return V(kind, width, unsigned(number(v), width))


def literal(word: str) -> V:
    """A constant: `16'0.5`, `1'1U`, `0x10ULL`, `2.0F`, `31`."""
    if "'" in word:
        width, body = word.split("'")
        width = int(width)
        if "." in body:
            x = float(body)
            return make("f", abs(width), -x if width < 0 else x)
        if body.startswith("0x"):
            return V("b", width, int(body, 16))
        return make("u" if body.endswith("U") else "i", width, int(body.rstrip("UI"), 0))
    if word.startswith("0x"):
        long, is_u = "L" in word, "U" in word
        value = int(word.rstrip("UL"), 16)
        return V("u" if is_u else "b", 64 if long or value >> 32 else 32, value)
    if "." in word:
        return make("f", 32 if word.endswith("F") else 64, float(word.rstrip("F")))
    if word.endswith("F"):
        return make("f", 32, float(word[:-1]))
    value = int(word.rstrip("UL"))
    if "U" in word or "L" in word:
        return make("u" if "U" in word else "i", 64 if "LL" in word else 32, value)
    return V("n", 0, value)


class Memory:
    """Bytes that MEM[address] reads and writes."""

    def __init__(self, data: bytearray) -> None:
        self.data = data

    def read(self, address: int) -> V:
        """Sixteen bytes, of which a type suffix takes what it needs."""
        return V("b", 128, int.from_bytes(self.data[address : address + 16], "little"))

    def write(self, address: int, v: V) -> None:
        """As many bytes as the value is wide."""
        self.data[address : address + v.width // 8] = v.bits.to_bytes(v.width // 8, "little")


def compare(op: str, x: Number, y: Number) -> bool:
    """One comparison of numbers, NaN as IEEE has it."""
    return {
        "==": x == y,
        "!=": x != y,
        "<>": x < y or x > y,
        "<": x < y,
        "<=": x <= y,
        ">": x > y,
        ">=": x >= y,
    }[op]


def float_binary(op: str, x: float, y: float) -> float:
    """One float operation in f64, which is exact enough to round once to f32 or f16."""
    with np.errstate(all="ignore"):
        a, b = np.float64(x), np.float64(y)
        return float({"+": a + b, "-": a - b, "*": a * b, "/": a / b, "**": a**b}[op])


def int_binary(op: str, x: int, y: int) -> int:
    """One integer operation without a width."""
    match op:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "<<":
            return x << y
        case ">>":
            return x >> y
        case "&":
            return x & y
        case "|":
            return x | y
        case "^":
            return x ^ y
    raise PcodeError(f"operator {op}")


def binary(op: str, a: V, b: V) -> V:
    """One operation on typed values."""
    if op in ("==", "!=", "<>", "<", "<=", ">", ">="):
        if b.kind == "D":  # "== DENORM" asks for a class, not for equality
            return V("u", 1, int(FUNCTIONS["isDENORM"](None, a).bits))
        if b.kind == "Z":  # a zero of one sign
            return V("u", 1, int(unsigned(a.bits, a.width - 1) == 0 and a.bits >> (a.width - 1) == b.bits))
        return V("u", 1, int(compare(op, number(a), number(b))))
    if op in ("&&", "||"):
        x, y = bool(a.bits), bool(b.bits)
        return V("u", 1, int(x and y if op == "&&" else x or y))
    if a.kind in "fg" or b.kind in "fg":
        first = a if a.kind in "fg" else b
        return make(first.kind, first.width, float_binary(op, number(a), number(b)))
    if a.kind == "n" and b.kind == "n":
        return V("n", 0, int_binary(op, a.bits, b.bits))
    shift = op in ("<<", ">>")
    model = a if shift and a.kind != "n" else b if a.kind == "n" else a
    width = model.width if shift or b.kind == "n" or a.kind == "n" else max(a.width, b.width)
    return V(model.kind, width, unsigned(int_binary(op, number(a), number(b)), width))


def special(v: V, kind: str, width: int) -> V:
    """INF.f16, NAN.f32, DENORM.f32."""
    if v.width == 2:
        return V("D", width, 0)
    return make(kind, width, float("inf") if v.width == 0 else float("nan"))


def negated(op: str, v: V) -> V:
    """`-v`, `~v`, `!v`."""
    if op == "!":
        return V("u", 1, int(not v.bits))
    if op == "~":
        return (
            V(v.kind, v.width, ~v.bits) if v.kind == "n" else V(v.kind, v.width, unsigned(~v.bits, v.width))
        )
    if v.kind == "special":
        return make("f", 64, float("-inf"))
    if v.kind in "fg":
        return V(v.kind, v.width, v.bits ^ 1 << (v.width - 1))
    return V("n", 0, -v.bits) if v.kind == "n" else V(v.kind, v.width, unsigned(-v.bits, v.width))


def concatenated(parts: list[V]) -> V:
    """`{ high, low }`."""
    bits = width = 0
    for part in parts:
        bits = bits << part.width | unsigned(part.bits, part.width)
        width += part.width
    return V("b", width, bits)

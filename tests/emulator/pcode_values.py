"""Typed bit patterns, and exact conversions between numbers and them. Independent of the emulator."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Number = Any  # int or float, as Python computes with them

# Width in bits: (mantissa bits, exponent bias, exponent bits)
IEEE = {16: (10, 15, 5), 32: (23, 127, 8), 64: (52, 1023, 11)}


@dataclass(frozen=True, slots=True)
class V:
    """A value: kind u(nsigned), i(nteger), f(loat), b(its), g (bfloat16), p (fp8), q (bf8), n (a number)."""

    kind: str
    width: int
    bits: int  # unsigned pattern; for n the number itself


def unsigned(x: int, width: int) -> int:
    """The low bits of an integer."""
    return x & ((1 << width) - 1)


def signed(x: int, width: int) -> int:
    """A bit pattern as two's complement."""
    x = unsigned(x, width)
    return x - (1 << width) if x >> (width - 1) & 1 else x


def float_of(bits: int, width: int) -> float:
    """An IEEE pattern as a Python float."""
    if width == 64:
        return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
    if width == 32:
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


def bits_of(x: float, width: int) -> int:
    """A Python float rounded to nearest even in an IEEE width."""
    with np.errstate(all="ignore"):
        if width == 64:
            return int(np.float64(x).view(np.uint64))
        if width == 32:
            return int(np.float32(x).view(np.uint32))
        return int(np.float64(x).astype(np.float16).view(np.uint16))


def bits_of_exact(x: Fraction, width: int, negative_zero: bool = False) -> int:
    """An exact number rounded once, to nearest even, in an IEEE width."""
    mantissa, bias, exponents = IEEE[width]
    sign = (1 << (width - 1)) if x < 0 or (x == 0 and negative_zero) else 0
    magnitude = abs(x)
    if magnitude == 0:
        return sign
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    scaled = magnitude / Fraction(2) ** (exponent - mantissa)
    whole = round(scaled)  # Python rounds halves to even
    code = whole + ((exponent + bias - 1) << mantissa)
    infinity = ((1 << exponents) - 1) << mantissa
    return sign | min(code, infinity)


def fused(a: float, b: float, c: float, width: int) -> int:
    """A * b + c rounded once."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        with np.errstate(all="ignore"):
            return bits_of(float(np.float64(a) * np.float64(b) + np.float64(c)), width)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    product_negative = math.copysign(1, a) * math.copysign(1, b) < 0
    product_zero = a == 0 or b == 0
    negative_zero = product_zero and product_negative and math.copysign(1, c) < 0
    return bits_of_exact(exact, width, negative_zero)


def is_nan(bits: int, width: int) -> bool:
    """Whether a pattern is a NaN."""
    mantissa, _, exponents = IEEE[width]
    top = (1 << exponents) - 1
    return bits >> mantissa & top == top and unsigned(bits, mantissa) != 0


def is_signalling(bits: int, width: int) -> bool:
    """Whether a pattern is a NaN without its quiet bit."""
    return is_nan(bits, width) and not bits >> (IEEE[width][0] - 1) & 1


def brain_float(bits: int) -> float:
    """A bfloat16 pattern as a float."""
    return float_of(bits << 16, 32)


def bits_of_brain(x: float) -> int:
    """A float rounded to bfloat16, from f32."""
    if math.isnan(x):
        return 0x7FC0
    pattern = bits_of(x, 32)
    return unsigned((pattern + 0x7FFF + (pattern >> 16 & 1)) >> 16, 16)


@dataclass(frozen=True, slots=True)
class Small:
    """A float format of 4 to 8 bits. `infinity`: a top exponent as in IEEE; `single_nan`: 0x80 is NaN."""

    mantissa: int
    exponents: int
    bias: int
    infinity: bool = False
    single_nan: bool = False
    nan: bool = True

    @property
    def width(self) -> int:
        """Bits."""
        return 1 + self.exponents + self.mantissa

    @property
    def largest(self) -> int:
        """Code of the largest finite number."""
        top = (1 << (self.width - 1)) - 1
        if self.infinity:
            return top - (1 << self.mantissa)
        return top if self.single_nan or not self.nan else top - 1

    def decode(self, code: int) -> float:
        """The number of a code."""
        sign = -1.0 if code >> (self.width - 1) else 1.0
        exponent = code >> self.mantissa & ((1 << self.exponents) - 1)
        fraction = unsigned(code, self.mantissa)
        magnitude = unsigned(code, self.width - 1)
        if self.single_nan and code == 1 << (self.width - 1):
            return math.nan
        if self.nan and not self.single_nan and magnitude > self.largest:
            return sign * math.inf if self.infinity and fraction == 0 else math.nan
        if exponent == 0:
            return sign * math.ldexp(fraction, 1 - self.bias - self.mantissa)
        return sign * math.ldexp(fraction | 1 << self.mantissa, exponent - self.bias - self.mantissa)

    def encode(self, x: float) -> int:
        """Nearest code, ties to even, saturated to the largest finite one; NaN is kept where there is one."""
        negative = math.copysign(1, x) < 0
        sign = (1 << (self.width - 1)) if negative else 0
        if math.isnan(x):
            top = (1 << (self.width - 1)) - 1
            return 1 << (self.width - 1) if self.single_nan else sign | (top if self.nan else self.largest)
        magnitude = abs(x)
        if magnitude >= self.decode(self.largest):
            return sign | self.largest
        if magnitude == 0:
            return 0 if self.single_nan else sign
        _, exponent = math.frexp(magnitude)
        unit = max(exponent - 1, 1 - self.bias) - self.mantissa
        steps = round(math.ldexp(magnitude, -unit))
        code = steps + (max(unit + self.mantissa + self.bias - 1, 0) << self.mantissa)
        code = min(code, self.largest)
        return 0 if self.single_nan and code == 0 else sign | code


FP8 = {"gfx942": Small(3, 4, 8, single_nan=True), "gfx950": Small(3, 4, 7)}
BF8 = {"gfx942": Small(2, 5, 16, single_nan=True), "gfx950": Small(2, 5, 15, infinity=True)}
FP4 = Small(1, 2, 1, nan=False)
FP6 = Small(3, 2, 1, nan=False)
BF6 = Small(2, 3, 3, nan=False)

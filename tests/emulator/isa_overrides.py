"""Oracles of our own where the published text is silent, incomplete or imprecise: each says why.

An override maps source bits and the old destination to the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from tests.emulator.pcode_values import (
    BF8,
    FP8,
    Small,
    bits_of,
    bits_of_exact,
    float_of,
    fused,
    signed,
    unsigned,
)

Override = Callable[[list[int], int], int]
# Results within this many units in the last place: the hardware's transcendental units are approximations.
ULPS = {
    f"v_{name}_{kind}": 2 if kind == "f32" else 1
    for name in ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos", "exp_legacy", "log_legacy", "rcp_iflag")
    for kind in ("f32", "f16", "f64")
}


# Sine and cosine have an absolute error, not one in units of their own last place.
ABSOLUTE = {"v_sin_f32": 2.0**-23, "v_cos_f32": 2.0**-23, "v_sin_f16": 2.0**-12, "v_cos_f16": 2.0**-12}


def _flushed(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def _f32(function: Callable[[np.float64], np.float64]) -> Override:
    """An f32 transcendental: denormals are zeros on both sides, which the text does not say."""

    def run(sources: list[int], _: int) -> int:
        with np.errstate(all="ignore"):
            result = float(function(np.float64(_flushed(float_of(sources[0], 32)))))
        bits = bits_of(result, 32)
        return bits if math.isnan(result) else bits_of(_flushed(float_of(bits, 32)), 32)

    return run


def _turns(function: Callable[[float], float], width: int) -> Override:
    """Sine and cosine of turns. The text multiplies by 2 pi in low precision, which loses the angle."""

    def run(sources: list[int], _: int) -> int:
        x = float_of(unsigned(sources[0], width), width)
        x = _flushed(x) if width == 32 else x
        if not math.isfinite(x):
            return bits_of(math.nan, width)
        return bits_of(function(2 * math.pi * math.fmod(x, 1.0)), width)

    return run


def _nearest(width: int) -> Override:
    """Round to even keeps the sign of a zero result, which the text's floor(x + 0.5) does not."""

    def run(sources: list[int], _: int) -> int:
        with np.errstate(all="ignore"):
            return bits_of(float(np.rint(float_of(unsigned(sources[0], width), width))), width)

    return run


def _fraction(width: int) -> Override:
    """The fraction is less than one, though x - floor(x) rounds to one for tiny negative x."""

    def run(sources: list[int], _: int) -> int:
        x = float_of(unsigned(sources[0], width), width)
        if not math.isfinite(x):
            return bits_of(math.nan, width)
        bits = bits_of(float(np.float64(x) - np.floor(x)), width)
        one = bits_of(1.0, width)
        return one - 1 if bits == one else bits

    return run


def _exponent(width: int, out: int) -> Override:
    """Denormals have the exponent of their leading bit, zero has 0; the text takes the raw field."""

    def run(sources: list[int], _: int) -> int:
        x = float_of(unsigned(sources[0], width), width)
        return unsigned(math.frexp(x)[1], out) if math.isfinite(x) else 0

    return run


def _ldexp(width: int, power_bits: int) -> Override:
    """Scaling by a power of two is exact; the text multiplies by an overflowing 2 ** n."""

    def run(sources: list[int], _: int) -> int:
        bits, power = unsigned(sources[0], width), signed(sources[1], power_bits)
        x = float_of(bits, width)
        if not math.isfinite(x) or x == 0:
            return bits
        return bits_of_exact(Fraction(x) * Fraction(2) ** max(min(power, 3000), -3000), width, x < 0)

    return run


def _lerp(sources: list[int], _: int) -> int:
    """Byte averages; the text shifts sums of eight bits without saying how wide they are."""
    a, b, c = sources
    return sum((((a >> k & 255) + (b >> k & 255) + (c >> k & 1)) >> 1) << k for k in (0, 8, 16, 24))


def _offset(sources: list[int], _: int) -> int:
    """The table of the text is not printed: sixteenths of a signed 4-bit number."""
    return bits_of(signed(sources[0], 4) / 16, 32)


def _pack(form: Small) -> Override:
    """The text saturates and rounds in a function that it does not define."""

    def run(sources: list[int], old: int) -> int:
        pair = form.encode(float_of(sources[0], 32)) | form.encode(float_of(sources[1], 32)) << 8
        return old & 0xFFFF0000 | pair

    return run


def truncated(form: Small, x: float, noise: int) -> int:
    """Stochastic rounding: noise is added below the kept bits, then they are cut off."""
    if math.isnan(x) or x == 0 or abs(x) >= form.decode(form.largest):
        return form.encode(x)
    sign = (1 << (form.width - 1)) if math.copysign(1, x) < 0 else 0
    _, exponent = math.frexp(x)
    unit = max(exponent - 1, 1 - form.bias) - form.mantissa
    drop = 23 - form.mantissa
    steps = math.floor(math.ldexp(abs(x), -unit) + (noise >> (32 - drop)) / 2**drop)
    code = min(steps + (max(unit + form.mantissa + form.bias - 1, 0) << form.mantissa), form.largest)
    return 0 if form.single_nan and code == 0 else sign | code


def _stochastic(form: Small) -> Override:
    """The text adds noise to the fraction, dropping its carry, and then rounds to nearest as well."""
    return lambda sources, old: old & ~0xFF | truncated(form, float_of(sources[0], 32), sources[1])


def _mix(keep: int, shift: int) -> Override:
    """Three f32 operands fused; published under the name mad_mix."""

    def run(sources: list[int], old: int) -> int:
        bits = fused(*(float_of(s, 32) for s in sources), 32)
        if not keep:
            return bits
        return old & keep | bits_of(float_of(bits, 32), 16) << shift

    return run


def overrides(target: str) -> dict[str, Override]:
    """By mnemonic."""
    found: dict[str, Override] = {
        "v_exp_f32": _f32(lambda x: np.exp2(x)),
        "v_log_f32": _f32(lambda x: np.log2(x)),
        "v_rcp_f32": _f32(lambda x: 1 / x),
        "v_rsq_f32": _f32(lambda x: 1 / np.sqrt(x)),
        "v_sqrt_f32": _f32(lambda x: np.sqrt(x)),
        "v_sin_f32": _turns(math.sin, 32),
        "v_cos_f32": _turns(math.cos, 32),
        "v_sin_f16": _turns(math.sin, 16),
        "v_cos_f16": _turns(math.cos, 16),
        "v_lerp_u8": _lerp,
        "v_cvt_off_f32_i4": _offset,
        "v_cvt_pk_fp8_f32": _pack(FP8[target]),
        "v_cvt_pk_bf8_f32": _pack(BF8[target]),
        "v_cvt_sr_fp8_f32": _stochastic(FP8[target]),
        "v_cvt_sr_bf8_f32": _stochastic(BF8[target]),
        "v_fma_mix_f32": _mix(0, 0),
        "v_fma_mixlo_f16": _mix(0xFFFF0000, 0),
        "v_fma_mixhi_f16": _mix(0xFFFF, 16),
        "v_ldexp_f16": _ldexp(16, 16),
        "v_ldexp_f32": _ldexp(32, 32),
        "v_ldexp_f64": _ldexp(64, 32),
        "v_frexp_exp_i16_f16": _exponent(16, 16),
        "v_frexp_exp_i32_f32": _exponent(32, 32),
        "v_frexp_exp_i32_f64": _exponent(64, 32),
    }
    found |= {"v_rcp_iflag_f32": found["v_rcp_f32"], "v_exp_legacy_f32": found["v_exp_f32"]}
    found |= {"v_log_legacy_f32": found["v_log_f32"]}
    for width in (16, 32, 64):
        found[f"v_rndne_f{width}"] = _nearest(width)
        found[f"v_fract_f{width}"] = _fraction(width)
    return found

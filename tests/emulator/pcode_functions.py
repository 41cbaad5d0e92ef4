"""Functions that the pseudo-code names: conversions, rounding, classes, and the like."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from tests.emulator.pcode_values import (
    BF6,
    BF8,
    FP4,
    FP6,
    FP8,
    IEEE,
    Small,
    V,
    bits_of,
    bits_of_brain,
    brain_float,
    float_of,
    fused,
    is_nan,
    is_signalling,
    signed,
    unsigned,
)


class HasValues(Protocol):
    """The running program."""

    values: dict[str, Any]


def _float(v: V) -> float:
    if v.kind == "g":
        return brain_float(v.bits)
    return float_of(v.bits, v.width) if v.kind == "f" else float(v.bits)


def _like(v: V, x: float) -> V:
    return V("f", v.width, bits_of(x, v.width))


def _flag(x: object) -> V:
    return V("u", 1, int(bool(x)))


def small_format(name: str, target: str) -> Small:
    """The format that fp8, bf8, fp6, bf6 or fp4 names on a target."""
    return {"fp8": FP8[target], "bf8": BF8[target], "fp6": FP6, "bf6": BF6, "fp4": FP4}[name]


def _saturated(x: float, low: int, high: int) -> int:
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return high if x > 0 else low
    return min(max(math.trunc(x), low), high)


def _to_int(v: V, name: str) -> V:
    width = int(name[1:])
    low, high = (0, (1 << width) - 1) if name[0] == "u" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    if v.kind in "fg":
        x = _saturated(_float(v), low, high)
    else:
        x = min(max(signed(v.bits, v.width) if v.kind == "i" else v.bits, low), high)
    return V(name[0], width, unsigned(x, width))


def _number(v: V, source: str) -> float | int:
    if v.kind in "fg":
        return _float(v)
    return signed(v.bits, v.width) if source[0] == "i" else v.bits


def convert(name: str, target: str, v: V, scale: V | None = None, *rest: V) -> V:
    """`f32_to_i32`, `u16_to_f16`, `fp8_to_f32`, `f32_to_fp8_scale`, `f16_to_snorm` and their kind."""
    source, _, to = name.partition("_to_")
    to, scaled = to.removesuffix("_scale"), to.endswith("_scale")
    factor = math.ldexp(1.0, scale.bits - 127) if scaled and scale is not None else 1.0
    if source in ("fp8", "bf8", "fp6", "bf6", "fp4"):
        x = small_format(source, target).decode(v.bits) * factor
        return V("g", 16, bits_of_brain(x)) if to == "bf16" else V("f", int(to[1:]), bits_of(x, int(to[1:])))
    if to in ("fp8", "bf8", "fp6", "bf6", "fp4"):
        form = small_format(to, target)
        return V("b", form.width, form.encode(_float(v) / factor))
    if to in ("snorm", "unorm"):
        return _normalised(_float(v), to)
    if to == "bf16":
        return V("g", 16, bits_of_brain(_float(v)))
    if to[0] == "f":
        width = int(to[1:])
        x = _number(v, source)
        return V("f", width, bits_of(x, width) if isinstance(x, float) else _bits_of_int(x, width))
    return _to_int(v, to)


def _bits_of_int(x: int, width: int) -> int:
    from tests.emulator.pcode_values import bits_of_exact

    return bits_of_exact(Fraction(x), width)


def _normalised(x: float, to: str) -> V:
    low, scale = (-1.0, 32767.0) if to == "snorm" else (0.0, 65535.0)
    x = 0.0 if math.isnan(x) else min(max(x, low), 1.0)
    return V("i" if to == "snorm" else "u", 16, unsigned(round(x * scale), 16))


def _exponent(v: V) -> V:
    mantissa, _, exponents = IEEE[v.width]
    return V("n", 0, v.bits >> mantissa & ((1 << exponents) - 1))


def _frexp_mantissa(v: V) -> V:
    return _like(v, math.frexp(_float(v))[0])


def _rounded(f: Callable[[float], float]) -> Callable[[Any, V], V]:
    def run(_: object, v: V) -> V:
        x = _float(v)
        return v if not math.isfinite(x) or x == 0 else _like(v, math.copysign(float(f(x)), x))

    return run


def _numpy(f: Callable[[Any], Any]) -> Callable[[Any, V], V]:
    def run(_: object, v: V) -> V:
        with np.errstate(all="ignore"):
            return _like(v, float(f(np.float64(_float(v)))))

    return run


def _turns(f: Callable[[float], float]) -> Callable[[Any, V], V]:
    """Sine or cosine of radians."""

    def run(_: object, v: V) -> V:
        x = _float(v)
        return _like(v, f(x) if math.isfinite(x) else math.nan)

    return run


def _fma(_: object, a: V, b: V, c: V) -> V:
    return V("f", a.width, fused(_float(a), _float(b), _float(c), a.width))


def _ldexp(_: object, v: V, n: V) -> V:
    x, power = _float(v), signed(n.bits, n.width) if n.kind == "i" else n.bits
    if not math.isfinite(x) or x == 0:
        return v
    from tests.emulator.pcode_values import bits_of_exact

    return V("f", v.width, bits_of_exact(Fraction(x) * Fraction(2) ** max(min(power, 5000), -5000), v.width))


def _pow(_: object, a: V, b: V) -> V:
    with np.errstate(all="ignore"):
        return _like(b, float(np.float64(_float(a)) ** np.float64(_float(b))))


def _quiet(_: object, v: V) -> V:
    return V("f", v.width, v.bits | 1 << (IEEE[v.width][0] - 1))


def _sign_extended(_: object, v: V, count: V | None = None) -> V:
    width = v.width if count is None else count.bits
    if count is not None:
        return V("i", v.width, unsigned(signed(v.bits, width), v.width) if width else 0)
    return V("i", 64, unsigned(signed(v.bits, width), 64))


def _denormal(_: object, v: V) -> V:
    x = _float(v)
    return _flag(x != 0 and _exponent(v).bits == 0 and not is_nan(v.bits, v.width))


def _abs(_: object, v: V) -> V:
    return V("f", v.width, unsigned(v.bits, v.width - 1))


def _to_half(m: HasValues, v: V) -> V:
    """f32 to f16 in the rounding mode that the program set."""
    x = _float(v)
    bits = bits_of(x, 16)
    if m.values["ROUND_MODE"].bits and math.isfinite(x) and abs(float_of(bits, 16)) > abs(x):
        bits -= 1  # one step toward zero
    return V("f", 16, bits)


def _address(m: HasValues, base: V, *offsets: V) -> V:
    """Calc...Addr. Literal zeros in place of the offsets mean that the text adds the offset itself."""
    own = all(o.bits == 0 and o.kind == "b" and o.width == 32 for o in offsets)
    return base if own else V("u", 64, base.bits + m.values["OFFSET"].bits)


FUNCTIONS: dict[str, Any] = {
    **{f"Calc{name}Addr": _address for name in ("Ds", "Flat", "Global", "Scratch", "Buffer")},
    "f32_to_f16": _to_half,
    "floor": _rounded(math.floor),
    "trunc": _rounded(math.trunc),
    "fract": lambda _, v: _like(
        v, _float(v) - math.floor(_float(v)) if math.isfinite(_float(v)) else math.nan
    ),
    "isEven": lambda _, v: _flag(math.isfinite(_float(v)) and _float(v) % 2 == 0),
    "sqrt": _numpy(np.sqrt),
    "log2": _numpy(np.log2),
    "sin": _turns(math.sin),
    "cos": _turns(math.cos),
    "pow": _pow,
    "fma": _fma,
    "abs": _abs,
    "ldexp": _ldexp,
    "isNAN": lambda _, v: _flag(is_nan(v.bits, v.width)),
    "isSignalNAN": lambda _, v: _flag(is_signalling(v.bits, v.width)),
    "isQuietNAN": lambda _, v: _flag(is_nan(v.bits, v.width) and not is_signalling(v.bits, v.width)),
    "isDENORM": _denormal,
    "cvtToQuietNAN": _quiet,
    "exponent": lambda _, v: _exponent(v),
    "mantissa": lambda _, v: _frexp_mantissa(v),
    "sign": lambda _, v: V("u", 1, v.bits >> (v.width - 1) & 1),
    "signext": _sign_extended,
    "signext_from_bit": _sign_extended,
    "bitCount": lambda _, v: V("n", 0, v.bits.bit_count()),
    "s_ff1_i32_b64": lambda _, v: V("n", 0, (v.bits & -v.bits).bit_length() - 1),
}

"""What an instruction must leave in the registers: AMD's pseudo-code, run lane by lane on the start state."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tests import needs
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import REGISTERS, Row
from tests.emulator.pcode_program import Library
from tests.emulator.pcode_values import V, float_of, is_nan

WIDTH = {"f64": 64, "b64": 64, "pk_f32": 64, "mask": 64}


@functools.cache
def library() -> Library:
    """The published pseudo-code, out of the package tinygrad."""
    module = needs.module(
        "tinygrad.runtime.autogen.amd.cdna.str_pcode", "the pseudo-code comes from `pip install tinygrad`"
    )
    texts: dict[str, str] = {}
    for op, text in module.PCODE.items():
        name = op.name.lower().removesuffix("_e32").removesuffix("_e64")
        texts.setdefault(name, text)
    for suffix in ("read", "write"):
        texts[f"v_accvgpr_{suffix}_b32"] = "D0.b32 = S0.b32"
    # The text asks whether an f32's reciprocal is a denormal f64, which none is; f32 is what matters.
    texts["v_div_scale_f32"] = texts["v_div_scale_f32"].replace(
        "1.0 / 64'F(S1.f32) == DENORM.f64", "1.0F / S1.f32 == DENORM.f32"
    )
    return Library(texts)


Source = Callable[[State, int], int]  # bits of a source in a lane


def vector(first: int, count: int) -> Source:
    """A vector register or pair."""
    if count == 1:
        return lambda state, lane: int(state.v[first, lane])
    return lambda state, lane: int(state.v[first, lane]) | int(state.v[first + 1, lane]) << 32


def scalar(first: int, count: int) -> Source:
    """A scalar register or pair."""
    if count == 1:
        return lambda state, _: int(state.s[first])
    return lambda state, _: int(state.s[first]) | int(state.s[first + 1]) << 32


def constant(bits: int) -> Source:
    """The same bits in all lanes."""
    return lambda state, lane: bits


class Expected:
    """What one lane's run gave."""

    __slots__ = ("d0", "d1", "mask")

    def __init__(self, d0: int, d1: int, mask: int) -> None:
        self.d0, self.d1, self.mask = d0, d1, mask


def lane_result(
    row: Row,
    sources: list[Source],
    state: State,
    lane: int,
    old: int,
    target: str,
    extra: dict[str, V] | None = None,
) -> Expected:
    """Run the pseudo-code of a row for one lane: D0, the carry or mask bit, and what it put into VCC."""
    values: dict[str, Any] = {
        "laneId": V("n", 0, lane),
        "EXEC": V("b", 64, state.exec),
        "VCC": V("b", 64, state.vcc),
        "D0": V("b", 64, old),
        "WAVE_MODE_IEEE": V("u", 1, 1),
    }
    for k, source in enumerate(sources):
        values[f"S{k}"] = V("b", 64, source(state, lane))
    if len(row.src) == 3 and row.src[2] == "mask":  # carry in, or the choice of v_cndmask
        values["VCC"] = V("b", 64, sources[2](state, lane))
    values["D"] = values["D0"]
    values.update(extra or {})
    registers: list[Any] = []
    if "VGPR" in library().texts[row.mnemonic]:  # some name registers instead of operands: D is 0, S0 is 1
        registers = [[]] * LANES
        registers[lane] = [V("b", 32, old), V("b", 32, sources[0](state, lane))]
        values |= {"VGPR": registers, "VDST": V("n", 0, 0), "SRC0": V("n", 0, 1)}
    out = library().run(row.mnemonic, values, target, registers)
    if "VGPR[laneId][VDST" in library().texts[row.mnemonic]:
        return Expected(registers[lane][0].bits, 0, out["VCC"].bits)
    d0 = out["D0"] if out["D0"] is not values["D0"] else out.get("D", out["D0"])
    d1 = out["D1"].bits & 1 if "D1" in out else out["VCC"].bits >> lane & 1
    return Expected(d0.bits, d1, out["VCC"].bits)


def same(kind: str, got: int, wanted: int, ulps: int = 0, absolute: float = 0.0) -> bool:
    """Whether two bit patterns of a type are equal; any NaN is as good as another."""
    if got == wanted:
        return True
    if kind == "bf16":
        return same("f32", got << 16, wanted << 16)
    if kind in ("pk_f16", "pk_f32", "pk_bf16"):
        half, part = (32, "f32") if kind == "pk_f32" else (16, kind[3:])
        mask = (1 << half) - 1
        return same(part, got & mask, wanted & mask) and same(part, got >> half, wanted >> half)
    if kind not in ("f16", "f32", "f64"):
        return False
    width = int(kind[1:])
    if got >> width or wanted >> width:
        return False
    if is_nan(got, width) or is_nan(wanted, width):
        return is_nan(got, width) and is_nan(wanted, width)
    x, y = float_of(got, width), float_of(wanted, width)
    near = ulps > 0 and math.copysign(1, x) == math.copysign(1, y) and abs(got - wanted) <= ulps
    return near or (absolute > 0 and abs(x - y) <= absolute)


def destination(state: State, first: int, kind: str) -> Source:
    """Old or new content of a destination register."""
    return vector(first, REGISTERS[kind])


def active(state: State) -> np.ndarray:
    """Lanes of EXEC."""
    return np.array([state.exec >> lane & 1 for lane in range(LANES)], bool)

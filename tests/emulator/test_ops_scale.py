"""Scaled conversions of gfx950 between 8- and 4-bit floats and wider ones, against AMD's pseudo-code."""

from __future__ import annotations

import itertools
import math

from tests.emulator import isa_oracle, isa_run
from tests.emulator.isa_inputs import register, states
from tests.emulator.isa_oracle import same
from tests.emulator.isa_overrides import truncated
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import REGISTERS, Row, rows_of
from tests.emulator.isa_valu import Case, name
from tests.emulator.pcode_values import BF8, FP8, V, brain_float, float_of

TARGET = "gfx950"
SOURCES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "fp8": "b32", "bf8": "b32", "fp4": "b32"}


def scale_rows() -> list[Row]:
    """The rows of isa/scale.inc."""
    return [row for row in rows_of(TARGET, "vop3") if "scalef32" in row.mnemonic]


def _source_kind(row: Row) -> str:
    return SOURCES[row.mnemonic.rsplit("_", 1)[1]]


def _state(base: State) -> State:
    """Scales around one, and a few extreme ones, in the last f32 register."""
    state = State(base.v.copy(), base.s, base.vcc, base.exec)
    for lane in range(LANES):
        state.v[2, lane] = (127 + (lane % 9 - 4) * (6 if lane % 5 == 0 else 1)) << 23 | lane
    return state


def _case(row: Row, bits: tuple[int, ...]) -> Case:
    kind = _source_kind(row)
    names, readers = [], []
    for k, wanted in enumerate(row.src):
        last = k == len(row.src) - 1
        use, place = ("f32", 2) if last else (kind if k == 0 or wanted == "f32" else "b32", k)
        names.append(name(use, place))
        readers.append(isa_oracle.vector(register(use, place), 1))
    op_sel = sum(bit << k for k, bit in enumerate(bits[:-1])) | bits[-1] << 3
    text = f"{row.mnemonic} {', '.join([name(row.dst, 3), *names])} op_sel:[{','.join(map(str, bits))}]"
    return Case(row, text, readers, register(row.dst, 3), {"OPSEL": V("b", 4, op_sel)})


def _cases() -> list[Case]:
    found = []
    for row in scale_rows():
        to = row.mnemonic.removeprefix("v_cvt_scalef32_")
        byte, pair = to.startswith(("sr_", "pk_fp4")), to.startswith(("pk_fp8", "pk_bf8"))
        if byte:
            choices = [(0, 0, a, b) for a, b in itertools.product((0, 1), repeat=2)]
        elif pair:
            choices = [(*[0] * len(row.src), a) for a in (0, 1)]
        else:
            part = (
                itertools.product((0, 1), repeat=2)
                if not to.endswith("8") or to[:2] != "pk"
                else [(0, 0), (1, 0)]
            )
            choices = [(a, b, 0) for a, b in part]
            choices += [(a, b, 1) for a, b, _ in choices] if row.dst == "half" else []
        found += [_case(row, bits) for bits in choices]
    return found


def _stochastic(row: Row, sources: list[int], old: int, op_sel: int) -> int:
    """The text leaves out how noise is added: below the kept bits, which are then cut off."""
    form = (FP8 if "_fp8_" in row.mnemonic else BF8)[TARGET]
    read = {"f32": lambda b: float_of(b, 32), "f16": lambda b: float_of(b & 0xFFFF, 16)}
    x = read.get(_source_kind(row), lambda b: brain_float(b & 0xFFFF))(sources[0])
    x = x / math.ldexp(1.0, (sources[2] >> 23 & 255) - 127)
    shift = 8 * (op_sel >> 2)
    return old & ~(0xFF << shift) | truncated(form, x, sources[1]) << shift


def _expected(case: Case, state: State, lane: int, old: int) -> int:
    row, op_sel = case.row, case.extra["OPSEL"].bits
    sources = [read(state, lane) for read in case.sources]
    if "_sr_" in row.mnemonic:
        return _stochastic(row, sources, old, op_sel)
    bits = isa_oracle.lane_result(row, case.sources, state, lane, old, TARGET, case.extra).d0
    if row.mnemonic.startswith(
        "v_cvt_scalef32_f16"
    ):  # one half, which op_sel[3] chooses; the text shows the value alone
        return old & 0xFFFF | bits << 16 if op_sel >> 3 else old & 0xFFFF0000 | bits & 0xFFFF
    return bits


def test_conversions() -> None:
    """Every row with every part of source or destination, with all lanes and some."""
    cases, inputs = _cases(), [_state(s) for s in states()[:2]]
    which = [(k, s) for k in range(len(cases)) for s in range(len(inputs))]
    outcome = isa_run.run(TARGET, [case.text for case in cases], inputs, which)
    wrong = []
    for (k, s), after in zip(which, outcome.states, strict=True):
        case, before = cases[k], inputs[s]
        read = isa_oracle.vector(case.dst, REGISTERS[case.row.dst])
        kind = {"pk_b16": "pk_bf16"}.get(
            case.row.dst, "pk_f16" if "_f16_" in case.row.mnemonic[:19] else case.row.dst
        )
        for lane in range(LANES):
            old = read(before, lane)
            wanted = _expected(case, before, lane, old) if before.exec >> lane & 1 else old
            if not same(kind, read(after, lane), wanted):
                shown = ", ".join(f"{source(before, lane):#x}" for source in case.sources)
                wrong.append(
                    f"{case.text}: {shown} old {old:#x} gave {read(after, lane):#x}, expected {wanted:#x}"
                )
                break
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:40])
    assert not outcome.reports, outcome.reports
    assert len(scale_rows()) == 28

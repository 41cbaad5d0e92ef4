"""Runs the plain form of vector instructions and compares with the oracle, for every format's test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.emulator import isa_oracle, isa_run
from tests.emulator.isa_inputs import register, states
from tests.emulator.isa_overrides import ABSOLUTE, ULPS, overrides
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import REGISTERS, Row
from tests.emulator.pcode_values import V

# v_div_scale: the text leaves out that an unscaled result is the first operand; it writes VCC for one lane.
STARTS_FROM_SOURCE = {"v_div_scale_f32", "v_div_scale_f64"}
COMPARED_AS = {
    "v_cvt_pk_bf16_f32": "pk_bf16",
    "v_fma_mixlo_f16": "pk_f16",
    "v_fma_mixhi_f16": "pk_f16",
}  # where a NaN may have any payload, though the row says bits


@dataclass(slots=True)
class Case:
    """One instruction: its text, what its sources are, and where its results go."""

    row: Row
    text: str
    sources: list[isa_oracle.Source]
    dst: int = -1  # vector register; -1: VCC
    extra: dict[str, V] = field(default_factory=dict)


def name(kind: str, place: int) -> str:
    """Register operand of a kind."""
    first, count = register(kind, place), REGISTERS[kind]
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def plain(row: Row) -> Case:
    """The row with vector registers everywhere and VCC as its mask."""
    implied = row.format == "vop2" and len(row.src) == 3 and row.src[2] != "mask"
    literal = row.mnemonic.startswith(("v_fmamk", "v_fmaak"))
    operands, sources = [], []
    for k, kind in enumerate(row.src):
        if kind == "mask":
            operands.append("vcc")
            sources.append(lambda state, lane: state.vcc)
        elif implied and k == 2:
            break
        else:
            operands.append(name(kind, k))
            sources.append(isa_oracle.vector(register(kind, k), REGISTERS[kind]))
    dst = "vcc" if row.dst == "mask" else name(row.dst, 3)
    carry = ["vcc"] if row.dst2 == "mask" else []
    if literal:
        operands.insert(1 if "mk" in row.mnemonic else 2, "0x3f9df3b6")
    extra = {"SIMM32": V("b", 32, 0x3F9DF3B6)} if literal else {}
    form = "_e32" if row.format in ("vop1", "vop2", "vopc") and not literal else ""
    text = f"{row.mnemonic}{form} {', '.join([dst, *carry, *operands])}"
    return Case(row, text, sources, -1 if row.dst == "mask" else register(row.dst, 3), extra)


def check(
    target: str,
    cases: Iterable[Case],
) -> int:
    """Run all cases on all start states; fails with all differences. Returns how many instructions ran."""
    cases = list(cases)
    inputs = states()
    which = [(k, s) for k in range(len(cases)) for s in range(len(inputs))]
    outcome = isa_run.run(target, [case.text for case in cases], inputs, which)
    wrong: list[str] = []
    for (k, s), after in zip(which, outcome.states, strict=True):
        case = cases[k]
        found = _differences(case, inputs[s], after, target)
        wrong += [f"{case.text} [state {s}] {text}" for text in found[:2]]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:60])
    assert not outcome.reports, outcome.reports
    return len({case.row.mnemonic for case in cases})


def _differences(case: Case, before: State, after: State, target: str) -> list[str]:
    ulps, override = ULPS.get(case.row.mnemonic, 0), overrides(target).get(case.row.mnemonic)
    kind = COMPARED_AS.get(case.row.mnemonic, case.row.dst)
    found: list[str] = []
    carries = 0
    dst = isa_oracle.vector(case.dst, REGISTERS[case.row.dst]) if case.dst >= 0 else None
    for lane in range(LANES):
        old = dst(before, lane) if dst else 0
        if not before.exec >> lane & 1:
            if dst and dst(after, lane) != old:
                found.append(f"lane {lane} is inactive but changed")
            continue
        sources = [s(before, lane) for s in case.sources]
        if override:
            wanted, bit = override(sources, old), 0
        else:
            start = sources[0] if case.row.mnemonic in STARTS_FROM_SOURCE else old
            run = isa_oracle.lane_result(case.row, case.sources, before, lane, start, target, case.extra)
            wanted, bit = run.d0, run.d1
            if case.row.dst == "mask":
                bit = run.d0 >> lane & 1
            elif case.row.mnemonic in STARTS_FROM_SOURCE:
                bit = run.mask & 1
        carries |= bit << lane
        if dst and not isa_oracle.same(
            kind, dst(after, lane), wanted, ulps, ABSOLUTE.get(case.row.mnemonic, 0.0)
        ):
            shown = ", ".join(f"{x:#x}" for x in sources)
            found.append(
                f"lane {lane}: {shown} old {old:#x} gave {dst(after, lane):#x}, expected {wanted:#x}"
            )
    if "mask" in (case.row.dst, case.row.dst2) and after.vcc != carries:
        found.append(f"mask {after.vcc:#x}, expected {carries:#x}")
    if case.row.mnemonic.startswith("v_cmpx") and after.exec != carries:
        found.append(f"EXEC {after.exec:#x}, expected {carries:#x}")
    return found

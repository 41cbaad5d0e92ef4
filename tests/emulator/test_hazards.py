"""Missing wait states: one planted case for every rule, and compiled kernels with and without their s_nop."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.emulator import asm_kernels, hip_kernels, test_faults
from tests.emulator.hazard_cases import CASES, TARGETS, Case

import rocade_emulator as emu

RULES = Path(emu.__file__).parent / "core/checks/hazards.inc"
_ROW = re.compile(r'^HAZARD\(([^,]+), ([^,]+), (\w+), .*, "([^"]+)", "[^"]+"\)$', re.MULTILINE)


@functools.cache
def rules() -> dict[tuple[str, str, str], str]:
    """The table: (first, second, touch) of a rule to what its report says."""
    text = RULES.read_text()
    found = {(first, second, touch): what for first, second, touch, what in _ROW.findall(text)}
    assert len(found) == len(re.findall(r"^HAZARD\(", text, re.MULTILINE)), "a row is written otherwise"
    return found


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(rules())


def _waits(states: int) -> list[str]:
    return [f"s_nop {min(states - at, 8) - 1}" for at in range(0, states, 8)]


def _body(case: Case, states: int) -> str:
    """The two instructions with so many wait states between them, well away from all others."""
    return "\n".join(["s_nop 15", "s_nop 15", case.first, *_waits(states), case.second, "s_nop 15"])


@functools.cache
def planted(target: str) -> emu.Program:
    """Two kernels a case: with all states it needs, and with one less."""
    bodies = {}
    for k, case in enumerate(CASES):
        if target in case.states:
            bodies[f"right{k}"] = _body(case, case.states[target])
            bodies[f"wrong{k}"] = _body(case, case.states[target] - 1)
    return asm_kernels.program(target, bodies, asm_kernels.Resources(lds=1024))


@pytest.mark.parametrize("target", TARGETS)
def test_one_state_less_than_needed_is_reported(target: str) -> None:
    problems = []
    for k, case in enumerate(CASES):
        if target not in case.states:
            continue
        needed = case.states[target]
        wanted = f"{rules()[case.rule]}: {needed} wait states needed after pc "
        clean = asm_kernels.launch(planted(target), f"right{k}", "hazards")
        if clean.reports:
            problems.append(f"{case}: with {needed} states: {clean.describe()}")
        broken = asm_kernels.launch(planted(target), f"wrong{k}", "hazards")
        if not any(
            r.detail.startswith(wanted) and r.detail.endswith(f"found {needed - 1}") for r in broken.errors
        ):
            problems.append(f"{case}: expected {wanted!r}, got {broken.describe()}")
    assert not problems, "\n".join(problems)


HARMLESS = {
    "a carry or a mask takes no wait": ("v_cmp_eq_u32 vcc, v0, v1", "v_cndmask_b32 v2, v3, v4, vcc"),
    "a chain of products": 2 * ("v_mfma_f32_32x32x8_f16 v[32:47], v[0:1], v[2:3], v[32:47]",),
    "dot products that accumulate": 2 * ("v_dot2_f32_f16 v1, v2, v3, v1",),
    "transcendental to transcendental": ("v_exp_f32 v1, v2", "v_log_f32 v3, v1"),
    "scalar unit after vector unit": ("v_readfirstlane_b32 s8, v0", "s_add_u32 s8, s8, 1"),
    "a store of 8 bytes": ("global_store_dwordx2 v[2:3], v[4:5], off", "v_mov_b32 v4, 0"),
    "a store with a scalar offset": (
        "buffer_store_dwordx4 v[4:7], v2, s[8:11], s12 offen",
        "v_mov_b32 v4, 0",
    ),
    "a buffer load to LDS": ("s_mov_b32 m0, 0", "buffer_load_dword v2, s[8:11], 0 offen lds"),
    "another hardware register": (
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0",
        "s_getreg_b32 s8, hwreg(HW_REG_HW_ID)",
    ),
}


@pytest.mark.parametrize("target", TARGETS)
def test_neighbours_that_need_no_wait(target: str) -> None:
    bodies = {f"k{k}": "\n".join(pair) for k, pair in enumerate(HARMLESS.values())}
    program = asm_kernels.program(target, bodies)
    for name, why in zip(bodies, HARMLESS, strict=True):
        try:
            result = asm_kernels.launch(program, name, "hazards")
        except emu.EmulationError as error:
            result = error.result
        assert not result.reports, f"{why}: {result.describe()}"


@pytest.mark.parametrize("target", TARGETS)
def test_states_are_counted_along_the_path(target: str) -> None:
    """A matrix instruction waits for the unit; a jump and a barrier take several states."""
    read = "v_mov_b32 v128, v32"
    product = "v_mfma_f32_32x32x8_f16 v[32:47], v[0:1], v[2:3], 0"
    busy = "v_mfma_f32_32x32x8_f16 v[48:63], v[4:5], v[6:7], 0"
    missing = {"gfx942": 3, "gfx950": 4}[target]  # of 11 or 12 after the 8 that the second product waits
    bodies = {
        "product": f"{product}\n{busy}\n" + "\n".join(_waits(missing - 1)) + f"\n{read}",
        "waited": f"{product}\n{busy}\n" + "\n".join(_waits(missing)) + f"\n{read}",
        "jump": f"{product}\ns_branch far\n s_nop 0\nfar:\n" + "\n".join(_waits(missing)) + f"\n{read}",
        "fall": f"{product}\ns_cmp_eq_u32 s0, s0\ns_cbranch_scc0 near\nnear:\ns_nop 1\n{read}",
    }
    program = asm_kernels.program(target, bodies)
    found = {name: len(asm_kernels.launch(program, name, "hazards").errors) for name in bodies}
    assert found == {"product": 1, "waited": 0, "jump": 0, "fall": 1}


# ---- Compiled kernels


def _hip(target: str, kernel: str, block: int, *args: Any) -> test_faults.Subject:
    program = hip_kernels.program(target)

    def run(version: emu.Program, **options: Any) -> tuple[emu.Result, list[Any]]:
        return emu.launch(version, kernel, 1, block, list(args), **options), list(args)

    return test_faults.Subject(program, run)


def _mfma(target: str, kernel: str, m: int, k: int) -> test_faults.Subject:
    a, b = np.ones((m, k), np.float16), np.ones((k, m), np.float16)
    return _hip(target, kernel, 64, a, b, np.zeros((m, m), np.float32))


def _integers(target: str) -> test_faults.Subject:
    a, b = (np.arange(1, 257, dtype=np.uint64) << np.uint64(shift) for shift in (3, 33))
    return _hip(target, "integers", 256, a, b, np.zeros_like(a), 256)


SUBJECTS = {
    "integers": _integers,
    "mfma_16": lambda target: _mfma(target, "mfma_16", 16, 16),
    "mfma_32": lambda target: _mfma(target, "mfma_32", 32, 8),
    "transpose": test_faults.transpose,
    "softmax": lambda target: test_faults.from_triton("softmax", target),
    "rms_norm": lambda target: test_faults.from_triton("rms_norm", target),
    "attention": lambda target: test_faults.from_triton("attention", target),
    "attention_causal": lambda target: test_faults.from_triton("attention_causal", target),
    "decode": lambda target: test_faults.from_triton("decode", target),
}


def unneeded(before: list[str], after: list[str]) -> str:
    """Why a compiler's s_nop between these instructions is not needed by the rules, or ""."""
    reader = next(text for text in after if not text.startswith(("s_nop", "s_waitcnt")))
    if reader.startswith(("v_cndmask", "v_addc", "v_subb")):
        return "a mask or carry takes no wait"
    if before[-1].startswith(("s_branch", "s_cbranch")):
        return "reached by a jump"
    if "_dpp" in reader and any(text.startswith("ds_read") for text in before[-2:]):
        return "DPP reads what s_waitcnt has waited for"
    if before[-1].startswith("v_pk_"):
        return "a packed result is in its place"
    if reader.startswith("v_mfma"):
        return "the matrix unit is busy"
    return ""


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("target", TARGETS)
def test_each_removed_nop_is_reported_or_not_needed(target: str, name: str) -> None:
    subject = SUBJECTS[name](target)
    instructions = subject.program.instructions
    texts = [inst.text for inst in instructions]
    index = {inst.pc: k for k, inst in enumerate(instructions)}
    places = test_faults.executed(subject, "s_nop")  # a run without a finding
    reported = 0
    for pc in places:
        result, _ = subject.run(subject.program.without([pc]), checks="hazards")
        at = index[pc]
        reported += bool(result.errors)
        around = texts[at - 3 : at + 4]
        assert result.errors or unneeded(texts[at - 3 : at], texts[at + 1 : at + 4]), f"0x{pc:x}: {around}"
    assert reported, "no removed s_nop was reported"

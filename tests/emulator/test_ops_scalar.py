"""Every SOP1, SOP2, SOPC and SOPK instruction against AMD's pseudo-code."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import Any

import pytest
from tests.emulator import isa_oracle, isa_run
from tests.emulator.isa_inputs import INTS, states
from tests.emulator.isa_run import State
from tests.emulator.isa_table import REGISTERS, TARGETS, Row, rows_of
from tests.emulator.pcode_values import V

# Control flow and mode registers: tests/emulator/test_ops_flow.py.
ELSEWHERE = ("s_getpc", "s_setpc", "s_swappc", "s_call", "s_getreg", "s_setreg")
TRIES = 24  # per instruction and SCC value
DST, OPERANDS = 8, (12, 16)


@dataclass(slots=True)
class Try:
    """One run: the instruction, and the values of its operands before."""

    row: Row
    text: str
    state: State
    sources: list[int]
    old: int


def _value(rng: random.Random, width: int) -> int:
    word = rng.choice(INTS) if rng.random() < 0.6 else rng.getrandbits(32)
    return (
        word if width == 1 else word | (rng.choice(INTS) if rng.random() < 0.6 else rng.getrandbits(32)) << 32
    )


def _name(first: int, width: int) -> str:
    return f"s{first}" if width == 1 else f"s[{first}:{first + width - 1}]"


def _write(state: State, first: int, width: int, value: int) -> None:
    state.s[first] = value & 0xFFFFFFFF
    if width == 2:
        state.s[first + 1] = value >> 32


def _start(rng: random.Random, scc: int) -> State:
    base = states()[0]
    s = base.s.copy()
    return State(base.v, s, rng.getrandbits(64), rng.getrandbits(64) | 1, rng.getrandbits(32), scc)


def _tries(row: Row) -> list[Try]:
    rng = random.Random(zlib.crc32(row.mnemonic.encode()))
    found = []
    for k in range(2 * TRIES):
        state = _start(rng, k & 1)
        width = max(REGISTERS[row.dst], 1)
        old = _value(rng, width)
        _write(state, DST, width, old)
        operands, sources = [], []
        for kind, first in zip(row.src, OPERANDS, strict=False):
            value = _value(rng, REGISTERS[kind])
            constant = k % 6 == 5 and first == OPERANDS[-1]
            if constant:
                value = rng.randrange(-16, 65)
            _write(state, first, REGISTERS[kind], value & (1 << 64) - 1)
            operands.append(str(value) if constant else _name(first, REGISTERS[kind]))
            sources.append(value & ((1 << 32 * REGISTERS[kind]) - 1))
        dst = [_name(DST, width)] if row.dst != "none" else []
        if row.format == "sopk":
            immediate = rng.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF, rng.getrandbits(16)))
            dst = dst or [operands.pop()]
            operands = [hex(immediate)]
            sources = [*sources, immediate]
        found.append(Try(row, f"{row.mnemonic} {', '.join([*dst, *operands])}", state, sources, old))
    return found


def _expected(case: Try, target: str) -> dict[str, Any]:
    state = case.state
    values: dict[str, Any] = {
        "D0": V("b", 64, case.old),
        "EXEC": V("b", 64, state.exec),
        "VCC": V("b", 64, state.vcc),
        "SCC": V("b", 1, state.scc),
    }
    values |= {f"S{k}": V("b", 64, bits) for k, bits in enumerate(case.sources)}
    return isa_oracle.library().run(case.row.mnemonic, values, target)


def _difference(case: Try, after: State, target: str) -> str:
    wanted = _expected(case, target)
    width = REGISTERS[case.row.dst]
    got = sum(int(after.s[DST + k]) << 32 * k for k in range(width))
    problems = []
    if width and got != wanted["D0"].bits & ((1 << 32 * width) - 1):
        problems.append(f"result {got:#x}, expected {wanted['D0'].bits:#x}")
    if after.scc != wanted["SCC"].bits & 1:
        problems.append(f"SCC {after.scc}, expected {wanted['SCC'].bits & 1}")
    if after.exec != wanted["EXEC"].bits:
        problems.append(f"EXEC {after.exec:#x}, expected {wanted['EXEC'].bits:#x}")
    if after.vcc != case.state.vcc or after.m0 != case.state.m0:
        problems.append("VCC or M0 changed")
    sources = ", ".join(hex(x) for x in case.sources)
    return (
        f"{case.text} ({sources}; old {case.old:#x}, SCC {case.state.scc}): {'; '.join(problems)}"
        if problems
        else ""
    )


@pytest.mark.parametrize("target", TARGETS)
def test_results_and_scc(target: str) -> None:
    """Result, SCC and EXEC of each instruction on edge cases and random values."""
    rows = [
        row
        for row in rows_of(target, "sop1", "sop2", "sopc", "sopk")
        if not row.mnemonic.startswith(ELSEWHERE)
    ]
    tries = [case for row in rows for case in _tries(row)]
    which = [(k, k) for k in range(len(tries))]
    outcome = isa_run.run(target, [case.text for case in tries], [case.state for case in tries], which)
    wrong = [_difference(case, after, target) for case, after in zip(tries, outcome.states, strict=True)]
    wrong = [text for text in wrong if text]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:60])
    assert not outcome.reports, outcome.reports
    assert len(rows) > 110


@pytest.mark.parametrize("target", TARGETS)
def test_special_operands(target: str) -> None:
    """VCC, EXEC, M0 and SCC as sources and destinations."""
    state = _start(random.Random(1), 1)
    lines = {
        "s_mov_b64 s[8:9], exec": ("s", state.exec),
        "s_mov_b64 s[8:9], vcc": ("s", state.vcc),
        "s_mov_b32 s8, m0\ns_mov_b32 s9, 0": ("s", state.m0),
        "s_mov_b32 s8, src_scc\ns_mov_b32 s9, 0": ("s", 1),
        "s_mov_b32 s8, src_vccz\ns_mov_b32 s9, src_execz": ("s", 0),
        "s_mov_b64 vcc, 0\ns_mov_b32 s8, src_vccz\ns_mov_b32 s9, 0": ("s", 1),
        "s_mov_b64 s[8:9], -5": ("s", (1 << 64) - 5),
        "s_mov_b64 s[8:9], 0x12345678": ("s", 0x12345678),
        "s_mov_b64 s[8:9], 1.0": ("s", 0x3FF0000000000000),
        "s_mov_b32 s8, 1.0\ns_mov_b32 s9, 0xdeadbeef": ("s", 0xDEADBEEF_3F800000),
        "s_mov_b64 exec, 0x55": ("exec", 0x55),
        "s_mov_b32 exec_hi, 7": ("exec", state.exec & 0xFFFFFFFF | 7 << 32),
        "s_mov_b32 vcc_hi, 7": ("vcc", state.vcc & 0xFFFFFFFF | 7 << 32),
        "s_mov_b32 m0, 99": ("m0", 99),
    }
    outcome = isa_run.run(target, list(lines), [state], [(k, 0) for k in range(len(lines))])
    for (text, (where, wanted)), after in zip(lines.items(), outcome.states, strict=True):
        got = int(after.s[8]) | int(after.s[9]) << 32 if where == "s" else getattr(after, where)
        assert got == wanted, text
    assert not outcome.reports, outcome.reports

"""Loads straight to LDS in flight: what touches the LDS that they write must have waited for them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.emulator import asm_kernels

import rocade_emulator as emu

TARGETS = ("gfx942", "gfx950")

# LDS holds ones before, so that nothing is uninitialised; v1 is a wave's own 256 bytes, M0 their start.
_START = """s_load_dwordx2 s[2:3], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v4, 1
v_readfirstlane_b32 s4, v1
s_mov_b32 m0, s4
v_and_b32 v2, 0xff, v1
ds_write_b32 v1, v4
s_waitcnt lgkmcnt(0)
s_barrier
global_load_lds_dword v1, s[2:3]
"""
_WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
OWN = "LDS that the load of pc 0x_ writes, which is in flight: missing s_waitcnt vmcnt"
OTHER = f"{OWN} before the barrier".replace("the load", "another wave's load")
# What follows the load, work items, and what the check says of it. Offset 512 is LDS that no load writes.
CASES = {
    "read": (f"ds_read_b32 v5, v1\n{_WAIT}", 64, OWN),
    "write": (f"ds_write_b32 v1, v4\n{_WAIT}", 64, OWN),
    "atomic": (f"ds_add_u32 v1, v4\n{_WAIT}", 64, OWN),
    "part": (f"s_mov_b64 exec, 1\nds_read_u8 v5, v1 offset:255\n{_WAIT}", 64, OWN),
    "waited": (f"{_WAIT}ds_read_b32 v5, v1\n{_WAIT}", 64, ""),
    "elsewhere": (f"ds_write_b32 v1, v4 offset:512\n{_WAIT}", 64, ""),
    "twice": (f"global_load_lds_dword v1, s[2:3]\n{_WAIT}", 64, ""),
    "own_of_two": (f"ds_read_b32 v5, v1\n{_WAIT}", 128, OWN),
    "after_barrier": (f"s_barrier\nds_read_b32 v5, v2\n{_WAIT}", 128, OTHER),
    "two_barriers": (f"s_barrier\nds_read_b32 v5, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\n{_WAIT}", 128, OTHER),
    "handed_over": (f"{_WAIT}s_barrier\nds_read_b32 v5, v2\n{_WAIT}", 128, ""),
}


@functools.cache
def program(target: str) -> emu.Program:
    bodies = {name: _START + body for name, (body, _, _) in CASES.items()}
    return asm_kernels.program(target, bodies, asm_kernels.Resources(lds=1024))


@pytest.mark.parametrize("schedule", emu.SCHEDULES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", TARGETS)
def test_touching_what_a_load_writes(target: str, name: str, schedule: str) -> None:
    _, items, wanted = CASES[name]
    x = np.arange(128, dtype=np.uint32)
    checks = ("waits", "races")
    result = emu.launch(program(target), name, 1, items, [x], checks=checks, schedule=schedule)
    found = {detail_of(r.detail) for r in result.errors}
    if name == "after_barrier" and schedule != "round_robin":
        wanted = OTHER if OTHER in found else "LDS read races with another wave's write"  # it landed by then
    assert (wanted in found) if wanted else not found, found


def detail_of(text: str) -> str:
    """Without the place of the load."""
    head, _, rest = text.partition("0x")
    return f"{head}0x_ {rest.partition(' ')[2]}" if rest else text

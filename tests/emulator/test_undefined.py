"""Undefined halves of 64-bit values: no finding where only the other half is used, one where it is."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator import asm_kernels

import rocade_emulator as emu

TARGETS = ("gfx942", "gfx950")

# Compilers expand wide products so that only the low dword of these results is used; v9 is never written.
UPWARD = (
    "v_mad_u64_u32 v[8:9], vcc, v0, v1, v[8:9]",
    "v_mad_i64_i32 v[8:9], vcc, v0, v1, v[8:9]",
    "v_lshl_add_u64 v[8:9], v[8:9], 2, v[2:3]",
    "v_lshlrev_b64 v[8:9], 3, v[8:9]",
)
START = "v_mov_b32 v1, 3\nv_mov_b32 v2, 1\nv_mov_b32 v3, 0\nv_mov_b32 v8, 5\n"


def found(target: str, body: str) -> list[str]:
    program = asm_kernels.program(target, {"k": START + body})
    result = asm_kernels.launch(program, "k", ("uninitialised",))
    return [f"{report.instruction}: {report.detail}" for report in result.errors]


@pytest.mark.parametrize("text", UPWARD)
@pytest.mark.parametrize("target", TARGETS)
def test_an_undefined_high_dword_stays_in_the_high_dword(target: str, text: str) -> None:
    assert found(target, f"{text}\nv_mov_b32 v10, v8") == []
    (report,) = found(target, f"{text}\nv_mov_b32 v10, v9")
    assert report == "v_mov_b32_e32 v10, v9: read of a vector register that was never written"
    # On through a second one, and away when it is written.
    assert len(found(target, f"{text}\n{text}\nv_mov_b32 v10, v9")) == 1
    assert found(target, f"{text}\nv_mov_b32 v9, 0\n{text}\nv_mov_b32 v10, v9") == []


@pytest.mark.parametrize("text", UPWARD)
def test_an_undefined_low_dword_is_reported(text: str) -> None:
    assert len(found("gfx942", f"v_mov_b32 v9, 0\n{text.replace('v[8:9]', 'v[18:19]')}")) == 1


def test_a_defined_result_becomes_undefined_again() -> None:
    body = "v_mov_b32 v9, 0\nv_mad_u64_u32 v[8:9], vcc, v0, v1, v[18:19]\nv_mov_b32 v10, v9"
    assert len(found("gfx942", "v_mov_b32 v18, 0\n" + body)) == 1


def test_only_lanes_that_ran_become_undefined() -> None:
    body = (
        "v_mov_b32 v9, 0\ns_mov_b64 exec, 1\nv_mad_u64_u32 v[8:9], vcc, v0, v1, v[18:19]\n"
        "s_mov_b64 exec, {mask}\nv_mov_b32 v10, v9"
    )
    assert found("gfx942", "v_mov_b32 v18, 0\n" + body.format(mask="2")) == []
    assert len(found("gfx942", "v_mov_b32 v18, 0\n" + body.format(mask="3"))) == 1


def test_arguments_are_counted_apart() -> None:
    data = np.zeros(64, np.uint32)
    body = (
        "s_load_dwordx2 s[2:3], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_load_dwordx4 s[4:7], s[2:3], 0x0\n"
        "v_lshlrev_b32 v1, 2, v0\nglobal_load_dword v2, v1, s[2:3]"
    )
    counters = emu.launch(asm_kernels.program("gfx942", {"k": body}), "k", 3, 64, [data]).check().counters
    assert counters.bytes_arguments == 3 * 8
    assert counters.bytes_read == 3 * (16 + 4 * 64)

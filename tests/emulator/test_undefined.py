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
    assert found(target, f"{text}\nv_add_u32 v10, v8, v1") == []
    (report,) = found(target, f"{text}\nv_add_u32 v10, v9, v1")
    assert report == "v_add_u32_e32 v10, v9, v1: read of a vector register that was never written"
    # On through a second one, and away when it is written.
    assert len(found(target, f"{text}\n{text}\nv_add_u32 v10, v9, v1")) == 1
    assert found(target, f"{text}\nv_mov_b32 v9, 0\n{text}\nv_add_u32 v10, v9, v1") == []


@pytest.mark.parametrize("text", UPWARD)
def test_an_undefined_low_dword_is_reported(text: str) -> None:
    assert len(found("gfx942", f"v_mov_b32 v9, 0\n{text.replace('v[8:9]', 'v[18:19]')}")) == 1


def test_a_defined_result_becomes_undefined_again() -> None:
    body = "v_mov_b32 v9, 0\nv_mad_u64_u32 v[8:9], vcc, v0, v1, v[18:19]\nv_add_u32 v10, v9, v1"
    assert len(found("gfx942", "v_mov_b32 v18, 0\n" + body)) == 1


def test_only_lanes_that_ran_become_undefined() -> None:
    body = (
        "v_mov_b32 v9, 0\ns_mov_b64 exec, 1\nv_mad_u64_u32 v[8:9], vcc, v0, v1, v[18:19]\n"
        "s_mov_b64 exec, {mask}\nv_add_u32 v10, v9, v1"
    )
    assert found("gfx942", "v_mov_b32 v18, 0\n" + body.format(mask="2")) == []
    assert len(found("gfx942", "v_mov_b32 v18, 0\n" + body.format(mask="3"))) == 1


COPIES = (
    ("v_mov_b32 v10, v40", "v10"),
    ("v_mov_b64 v[10:11], v[40:41]", "v11"),
    ("v_mov_b64 v[10:11], s[40:41]", "v10"),
    ("v_accvgpr_write_b32 a3, v40\nv_accvgpr_mov_b32 a4, a3\nv_accvgpr_read_b32 v10, a4", "v10"),
    ("s_mov_b64 s[50:51], s[40:41]\ns_mov_b32 s52, s51\nv_mov_b32 v10, s52", "v10"),
)


@pytest.mark.parametrize(("text", "register"), COPIES)
@pytest.mark.parametrize("target", TARGETS)
def test_copies_pass_on_what_is_undefined(target: str, text: str, register: str) -> None:
    """Compilers copy whole values of which a part is undefined; only a use of that part is a fault."""
    assert found(target, text) == []
    (report,) = found(target, f"{text}\nv_add_u32 v12, {register}, v1")
    assert "v_add_u32_e32 v12" in report
    defined = "v_mov_b32 v40, 0\nv_mov_b32 v41, 0\ns_mov_b64 s[40:41], 0\n"
    assert found(target, f"{defined}{text}\nv_add_u32 v12, {register}, v1") == []


@pytest.mark.parametrize("text", ["s_mov_b64 exec, s[40:41]", "s_mov_b32 m0, s40", "s_mov_b64 vcc, s[40:41]"])
def test_special_registers_take_defined_values(text: str) -> None:
    assert len(found("gfx942", text)) == 1


def test_arguments_are_counted_apart() -> None:
    data = np.zeros(64, np.uint32)
    body = (
        "s_load_dwordx2 s[2:3], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_load_dwordx4 s[4:7], s[2:3], 0x0\n"
        "v_lshlrev_b32 v1, 2, v0\nglobal_load_dword v2, v1, s[2:3]"
    )
    counters = emu.launch(asm_kernels.program("gfx942", {"k": body}), "k", 3, 64, [data]).check().counters
    assert counters.bytes_arguments == 3 * 8
    assert counters.bytes_read == 3 * (16 + 4 * 64)

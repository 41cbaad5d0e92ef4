"""Registers beyond the allocation, private memory that was never written, and FLAT in both wait counts."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from tests.emulator import asm_kernels
from tests.emulator.hazard_cases import TARGETS

import rocade_emulator as emu

WITH_AGPRS = asm_kernels.Resources(vgprs=48, accum_offset=32, sgprs=26)  # 32 with what the assembler reserves
WITHOUT_AGPRS = asm_kernels.Resources(vgprs=16, accum_offset=16, sgprs=32)

# What is beyond 48 vector registers with AGPRs from 32 on, and 32 scalar ones; "" is within.
REGISTERS = {
    "v_mov_b32 v47, 0": "",
    "v_mov_b32 v48, 0": "write of v48, but the kernel has 48 registers of that kind",
    "v_mov_b32 v1, v48": "read of v48, but the kernel has 48 registers of that kind",
    "v_mov_b64 v[48:49], 0": "write of v49, but the kernel has 48 registers of that kind",
    "v_accvgpr_write_b32 a15, 0": "",
    "v_accvgpr_write_b32 a16, 0": "write of a16, but the kernel has 16 registers of that kind",
    "v_accvgpr_mov_b32 a17, a1": "write of a17, but the kernel has 16 registers of that kind",
    "s_mov_b32 s31, 0": "",
    "s_mov_b32 s32, 0": "write of s32, but the kernel has 32 registers of that kind",
    "s_mov_b64 s[98:99], 0": "write of s99, but the kernel has 32 registers of that kind",
    "s_mov_b64 vcc, 0": "",
    "s_mov_b32 m0, 0": "",
}


@pytest.mark.parametrize("target", TARGETS)
def test_registers_beyond_the_allocation(target: str) -> None:
    bodies = {f"k{k}": text for k, text in enumerate(REGISTERS)}
    program = asm_kernels.program(target, bodies, WITH_AGPRS)
    kernel = program.kernel("k0")
    assert (kernel.vgprs, kernel.accum_offset, kernel.sgprs) == (48, 32, 32)
    for name, wanted in zip(bodies, REGISTERS.values(), strict=True):
        result = asm_kernels.launch(program, name, "bounds")
        assert [(r.check, r.severity, r.detail) for r in result.reports] == (
            [("bounds", "error", wanted)] if wanted else []
        ), bodies[name]
        assert not asm_kernels.launch(program, name, ("waits", "hazards")).reports, "a check of its own"


def test_agprs_of_a_kernel_that_has_none() -> None:
    program = asm_kernels.program("gfx942", {"k": "v_accvgpr_write_b32 a0, 0"}, WITHOUT_AGPRS)
    (found,) = asm_kernels.launch(program, "k", "bounds").reports
    assert found.detail == "write of a0, but the kernel has 0 registers of that kind"
    assert (found.instruction, found.wave) == ("v_accvgpr_write_b32 a0, 0", 0)


def test_only_what_runs_is_reported() -> None:
    program = asm_kernels.program("gfx942", {"k": "s_endpgm\nv_mov_b32 v255, 0"}, WITH_AGPRS)
    assert not asm_kernels.launch(program, "k").reports


SCRATCH = asm_kernels.Resources(scratch=64)
PRIVATE = {
    "read": ("v_mov_b32 v1, 0\nscratch_load_dword v2, v1, off offset:8", 1),
    "written": (
        "v_mov_b32 v1, 0\nscratch_store_dword v1, v1, off offset:8\nscratch_load_dword v2, v1, off offset:8",
        0,
    ),
    "other": (
        "v_mov_b32 v1, 0\nscratch_store_dword v1, v1, off offset:8\nscratch_load_dword v2, v1, off offset:12",
        1,
    ),
    "half": (
        "v_mov_b32 v1, 0\nscratch_store_short v1, v1, off offset:8\nscratch_load_dword v2, v1, off offset:8",
        1,
    ),
    "half_read": ("v_mov_b32 v1, 0\nscratch_store_short v1, v1, off\nscratch_load_ushort v2, v1, off", 0),
    "lanes": (
        "v_mov_b32 v1, 0\ns_mov_b64 exec, 15\nscratch_store_dword v1, v1, off\ns_mov_b64 exec, 31\n"
        "scratch_load_dword v2, v1, off",
        1,
    ),
}


@pytest.mark.parametrize("target", TARGETS)
def test_private_memory_that_was_never_written(target: str) -> None:
    program = asm_kernels.program(target, {name: body for name, (body, _) in PRIVATE.items()}, SCRATCH)
    for name, (_, faults) in PRIVATE.items():
        result = asm_kernels.launch(program, name, "uninitialised")
        details = [r.detail for r in result.errors]
        assert details == faults * ["read of private memory that was never written"], name
        assert not asm_kernels.launch(program, name, "bounds").reports
    (found,) = asm_kernels.launch(program, "lanes", "uninitialised").errors
    assert found.lane == 4


# ---- FLAT

_START = (
    "s_load_dwordx2 s[2:3], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v2, s2\nv_mov_b32 v3, s3\ns_nop 4\n"
)
_LDS = "v_mov_b32 v8, 0\nds_write_b32 v8, v8\ns_waitcnt lgkmcnt(0)\n"
FLAT = {
    # waits between a flat load and its reader, and whether they suffice
    "none": ("", False),
    "vm": ("s_waitcnt vmcnt(0)\n", False),
    "lgkm": ("s_waitcnt lgkmcnt(0)\n", False),
    "both": ("s_waitcnt vmcnt(0) lgkmcnt(0)\n", True),
    "in_turn": ("s_waitcnt lgkmcnt(0)\ns_waitcnt vmcnt(0)\n", True),
}


@functools.cache
def flat(target: str) -> emu.Program:
    read = "v_mov_b32 v5, v4\n"
    bodies = {name: f"{_START}flat_load_dword v4, v[2:3]\n{wait}{read}" for name, (wait, _) in FLAT.items()}
    older = "global_load_dword v4, v[2:3], off\nflat_load_dword v6, v[2:3]\n"
    bodies["older_global"] = f"{_START}{older}s_waitcnt vmcnt(1)\n{read}"
    bodies["older_lds"] = (
        f"{_LDS}{_START}ds_read_b32 v4, v8\nflat_load_dword v6, v[2:3]\ns_waitcnt lgkmcnt(1)\n{read}"
    )
    bodies["older_both"] = f"{_START}{older}s_waitcnt vmcnt(0) lgkmcnt(0)\n{read}"
    bodies["store"] = f"{_START}flat_store_dword v[2:3], v8\ns_waitcnt vmcnt(0)\nv_mov_b32 v8, 0\n"
    return asm_kernels.program(target, bodies, asm_kernels.Resources(lds=64))


def _run_flat(target: str, name: str) -> emu.Result:
    return emu.launch(flat(target), name, 1, 64, [np.zeros(4, np.float32)], checks="waits")


@pytest.mark.parametrize("target", TARGETS)
def test_a_flat_load_is_counted_twice(target: str) -> None:
    text = "read of v4 while the load of pc 0x_ into it is in flight: missing s_waitcnt "
    missing = {"none": "vmcnt and lgkmcnt", "vm": "lgkmcnt", "lgkm": "vmcnt"}
    for name, (_, enough) in FLAT.items():
        found = _run_flat(target, name).errors
        details = [re.sub("0x[0-9a-f]+", "0x_", r.detail) for r in found]
        assert details == ([] if enough else [text + missing[name]]), name


@pytest.mark.parametrize("target", TARGETS)
def test_with_a_flat_load_in_flight_only_zero_proves_anything(target: str) -> None:
    faults = {
        name: len(_run_flat(target, name).errors)
        for name in ("older_global", "older_lds", "older_both", "store")
    }
    assert faults == {"older_global": 1, "older_lds": 1, "older_both": 0, "store": 0}

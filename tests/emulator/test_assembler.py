"""Finding an assembler, and what it says when there is none or the source is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import needs

import rocade_emulator as emu
from rocade_emulator import _assembler

SOURCE = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.text
.p2align 8
.globl nothing
.type nothing,@function
nothing:
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel nothing
  .amdhsa_next_free_vgpr 1
  .amdhsa_next_free_sgpr 1
  .amdhsa_accum_offset 4
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: nothing
    .symbol: nothing.kd
    .kernarg_segment_size: 0
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .kernarg_segment_align: 4
    .wavefront_size: 64
    .sgpr_count: 1
    .vgpr_count: 1
    .max_flat_workgroup_size: 64
...
.end_amdgpu_metadata
"""


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    _assembler.assembler.cache_clear()
    yield
    _assembler.assembler.cache_clear()


def test_assembles_and_runs() -> None:
    program = emu.Program.from_assembly(SOURCE)
    assert program.target.name == "gfx942"
    assert emu.launch(program, None, 3, 64, []).check().counters.instructions == 3


def test_a_newer_compilers_triple_is_understood() -> None:
    newer = SOURCE.replace("amdgcn-amd-amdhsa--gfx942", "amdgpu9.42-amd-amdhsa-unknown-gfx942")
    assert emu.Program.from_assembly(newer).target.name == "gfx942"


def test_the_target_must_be_said_once() -> None:
    silent = SOURCE.replace('.amdgcn_target "amdgcn-amd-amdhsa--gfx942"', "")
    with pytest.raises(emu.AssemblyError, match="a target must be given"):
        emu.Program.from_assembly(silent)
    assert emu.Program.from_assembly(silent, "gfx950").target.name == "gfx950"
    with pytest.raises(emu.AssemblyError, match="for gfx942, the target given is gfx950"):
        emu.Program.from_assembly(SOURCE, "gfx950")
    with pytest.raises(ValueError, match="'gfx1100' is not emulated"):
        emu.Program.from_assembly(silent, "gfx1100")


def test_a_wrong_line_is_quoted() -> None:
    with pytest.raises(emu.AssemblyError, match="s_endprogram"):
        emu.Program.from_assembly(SOURCE.replace("s_endpgm", "s_endprogram"))


def test_without_an_assembler_the_error_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(emu.AssemblyError, match=r"pip install 'ziglang>=.*Tried: nothing"):
        emu.Program.from_assembly(SOURCE)


def test_an_old_clang_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in (("clang", "clang version 14.0.6"), ("ld.lld", "LLD 14")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("ROCADE_EMULATOR_CLANG", str(tmp_path / "clang"))
    with pytest.raises(emu.AssemblyError, match="version 14; 20 or newer is needed"):
        emu.Program.from_assembly(SOURCE)


def test_ziglang_serves_when_nothing_else_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs.module("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _assembler.assembler().clang[:3] == (sys.executable, "-m", "ziglang")

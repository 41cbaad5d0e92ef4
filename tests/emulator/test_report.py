"""Findings as text, occupancy and bound by hand-made numbers, the table and the JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.emulator.hip_kernels import program

import rocade_emulator as emu
from rocade_emulator._bound import bound
from rocade_emulator._kernarg import Shape
from rocade_emulator._metadata import Kernel
from rocade_emulator._occupancy import occupancy
from rocade_emulator._targets import TARGETS, target

COUNTERS = emu.Counters(
    instructions=0,
    by_unit={},
    mfma_cycles=0,
    valu_cycles=0,
    trans_cycles=0,
    salu_cycles=0,
    lds_cycles=0,
    lds_ideal_cycles=0,
    bytes_read=0,
    bytes_written=0,
    bytes_arguments=0,
    cache_lines=0,
    cache_lines_ideal=0,
    waves=0,
    groups=1,
)


def kernel(vgprs: int = 64, sgprs: int = 32, lds: int = 0) -> Kernel:
    return Kernel("k", 0, (), 0, lds, 0, vgprs, sgprs, 0, 0, 1, 0, 0)


@pytest.mark.parametrize(
    ("name", "made", "block", "groups", "limited_by"),
    [
        ("gfx942", kernel(vgprs=64), 256, 8, "vector registers"),
        ("gfx942", kernel(vgprs=65), 256, 7, "vector registers"),
        ("gfx942", kernel(vgprs=512), 64, 4, "vector registers"),
        ("gfx942", kernel(vgprs=128), 512, 2, "vector registers"),
        ("gfx942", kernel(vgprs=32, sgprs=112), 256, 7, "scalar registers"),
        ("gfx942", kernel(vgprs=32, lds=20000), 256, 3, "LDS"),
        ("gfx950", kernel(vgprs=32, lds=20000), 256, 8, "wave slots"),
        ("gfx950", kernel(vgprs=32, lds=40000), 256, 4, "LDS"),
        ("gfx942", kernel(vgprs=8), 128, 16, "wave slots"),
        ("gfx942", kernel(vgprs=8), 64, 32, "wave slots"),
    ],
)
def test_occupancy(name: str, made: Kernel, block: int, groups: int, limited_by: str) -> None:
    found = occupancy(target(name), made, Shape((1, 1, 1), (block, 1, 1)))
    assert (found.groups_per_cu, found.limited_by) == (groups, limited_by)
    assert found.waves_per_simd == groups * -(-block // 64) / 4


def test_bound_of_each_unit() -> None:
    gpu = target("gfx942")
    for field, unit, clocks in (
        ("mfma_cycles", "matrix", 1000 / 4),
        ("valu_cycles", "vector", 1000 / 4),
        ("trans_cycles", "vector", 1000 / 4),
        ("salu_cycles", "scalar", 1000 / 4),
        ("lds_cycles", "lds", 1000),
        ("cache_lines", "l1", 1000),
    ):
        found = bound(gpu, replace(COUNTERS, **{field: 1000}))
        assert (found.unit, found.clocks) == (unit, clocks)
    moved = bound(gpu, replace(COUNTERS, bytes_read=10**9, bytes_written=10**9, groups=304))
    assert moved.unit == "memory"
    assert moved.clocks == pytest.approx(2e9 / 5.3e12 * 2.1e9)


def test_bound_says_what_is_left_of_the_matrix_peak() -> None:
    found = bound(
        target("gfx950"), replace(COUNTERS, mfma_cycles=600, valu_cycles=700, trans_cycles=100, groups=2)
    )
    assert found.unit == "vector"
    assert found.clocks == 100
    assert found.matrix_share == 0.75
    assert found.matrix_share_serial == pytest.approx(600 / 1400)
    assert found.text() == (
        "vector-bound: 100 clocks; MFMA at 75% of peak if all else overlaps, 43% if matrix and vector do not"
    )


def test_work_is_spread_over_the_compute_units_there_are() -> None:
    for gpu in TARGETS:
        found = bound(gpu, replace(COUNTERS, lds_cycles=10**6, groups=10 * gpu.compute_units))
        assert found.clocks == 10**6 / gpu.compute_units


def faulty() -> emu.Result:
    x, out = np.ones((4, 100), np.float32), np.zeros((4, 100), np.float32)
    return emu.launch(program("gfx942"), "copy_rows", 4, 64, [x[:, :70], out[:, :70], 70, 100, 1])


def test_findings_are_readable() -> None:
    result = faulty()
    assert not result.ok
    with pytest.raises(emu.EmulationError) as caught:
        result.check()
    text = str(caught.value)
    assert caught.value.result is result
    assert "copy_rows on gfx942, grid (4, 1, 1), block (64, 1, 1): 2 kinds of fault" in text
    assert "[bounds] pc 0x" in text
    assert "`global_load_dword " in text
    assert "lane 6" in text
    assert "seen 4 times" in text
    read = next(report for report in result.reports if "read" in report.detail)
    assert read.where == "byte 280 of argument 0, in a hole between its elements"


def test_table_and_json_hold_the_same() -> None:
    result = faulty()
    table = result.report()
    for part in ("2 kinds of fault", "vmem", "issue cycles (model)", "occupancy: ", "bound: ", "coalescing"):
        assert part in table
    tree = json.loads(result.json())
    assert tree["counters"]["waves"] == result.counters.waves == 4
    assert [report["check"] for report in tree["reports"]] == ["bounds", "bounds"]
    assert tree["occupancy"]["groups_per_cu"] == 16 or tree["occupancy"]["groups_per_cu"] == 32
    assert tree["ok"] is False

"""AITER's hand-written forward attention: right against float64 and clean, or the known race is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.emulator import aiter

import rocade_emulator as emu

SCHEDULES: dict[str, dict[str, Any]] = {
    "round_robin": {},
    "round_robin_64": {"quantum": 64},
    "run_to_barrier": {"schedule": "run_to_barrier"},
    "random": {"schedule": "random", "quantum": 40, "seed": 7},
}
# (query heads, key-value heads), (queries, keys)
SHAPES = {
    "plain": ((1, 1), (512, 512)),
    "ragged": ((1, 1), (300, 333)),
    "grouped": ((4, 2), (256, 256)),
}


def forward(target: str, causal: bool, shape: str, **options: Any) -> tuple[aiter.Forward, emu.Result]:
    heads, seq = SHAPES[shape]
    case = aiter.make(1, heads, seq, 128, causal)
    return case, aiter.launch(target, case, **options)


def check(case: aiter.Forward) -> None:
    out, lse = aiter.reference(case)
    # bf16 keeps 8 bits: half a unit in the last place of values below 4, twice (P and O are rounded).
    np.testing.assert_allclose(aiter.from_bf16(case.out), out, atol=0.016)
    np.testing.assert_allclose(case.lse, lse, atol=2e-6, rtol=1e-6)


def only_the_known_race(result: emu.Result) -> bool:
    """gfx950 causal: the next tile's queries are loaded over LDS that other waves still read."""
    seen = {(r.check, r.instruction.split()[0]) for r in result.errors}
    load, read = ("races", "buffer_load_dwordx4"), ("races", "ds_read_b64_tr_b16")
    return load in seen and seen <= {load, read}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_right_under_every_schedule(target: str, schedule: str) -> None:
    case, result = forward(target, False, "plain", **SCHEDULES[schedule])
    assert not result.reports, result.describe()
    check(case)


@pytest.mark.parametrize("shape", ["ragged", "grouped"])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_ragged_and_grouped(target: str, shape: str) -> None:
    case, result = forward(target, False, shape)
    assert not result.reports, result.describe()
    check(case)


@pytest.mark.parametrize("shape", SHAPES)
def test_causal_gfx942(shape: str) -> None:
    case, result = forward("gfx942", True, shape)
    assert not result.reports, result.describe()
    check(case)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_causal_gfx950_is_right_or_its_race_is_named(schedule: str) -> None:
    case, result = forward("gfx950", True, "plain", **SCHEDULES[schedule])
    assert result.errors, "two tiles in one workgroup: the window is there under every schedule"
    assert only_the_known_race(result), result.describe()
    if schedule.startswith("round_robin"):
        check(case)


@pytest.mark.parametrize("shape", ["ragged", "grouped"])
def test_causal_gfx950_ragged_and_grouped(shape: str) -> None:
    """Two tiles have the known race; one tile a head has nothing to load over."""
    case, result = forward("gfx950", True, shape, quantum=64)
    two_tiles = case.q.shape[1] > aiter.TILE_M
    assert only_the_known_race(result) if two_tiles else not result.reports, result.describe()
    check(case)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_issue_cycles(target: str) -> None:
    """Matrix work is known from the shapes: 2 products of 512 * 512 * 128 multiply-adds."""
    _, result = forward(target, False, "plain")
    multiply_adds = 2 * 512 * 512 * 128
    per_cycle = {"gfx942": 32 * 32 * 8 / 32, "gfx950": 32 * 32 * 16 / 32}[target]
    assert result.counters.mfma_cycles == multiply_adds / per_cycle

"""Facts of silicon check themselves, and device names are normalised in one place."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest

from arch_caps import TARGETS, DType, Feature, Level, target_of
from arch_caps._target import Fact, Has


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("gfx942:sramecc+:xnack-", "gfx942"),
        ("gfx950", "gfx950"),
        ("gfx90a:sramecc+:xnack-", "gfx90a"),
        ("GFX942", "gfx942"),
        (" gfx942 ", "gfx942"),
        ("sm_90", "sm_90"),
        ("sm_90a", "sm_90"),
        ("sm80", "sm_80"),
        ("sm_120", "sm_120"),
        ("cpu-x86_64", "cpu-x86_64"),
        ("xpu", "xpu"),
        ("", ""),
    ],
)
def test_target_of(name: str, target: str) -> None:
    assert target_of(name) == target
    assert target_of(target) == target


@pytest.mark.parametrize(
    ("machine", "target"),
    [("x86_64", "cpu-x86_64"), ("AMD64", "cpu-x86_64"), ("aarch64", "cpu-generic"), ("", "cpu-generic")],
)
def test_target_of_cpu_is_this_machine(monkeypatch: pytest.MonkeyPatch, machine: str, target: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert target_of("cpu") == target
    assert target_of("cpu:0") == target


def test_all_problems_are_reported_at_once() -> None:
    target = TARGETS["gfx942"]
    with pytest.raises(ValueError, match="target gfx942") as error:
        replace(
            target,
            title="",
            wave_size=Fact(-1, ""),
            lds_bytes=65536,
            direct_to_lds_bits=Fact((7,), "x"),
            fp8=Fact("FNUZ?", "x"),
            features=(*target.features[1:], target.features[1], target.features[2]),
            matrix=(target.matrix[0], target.matrix[0]),
            skus=(replace(target.skus[0], compute_units=0),),
        )
    text = str(error.value)
    for part in (
        "title is empty",
        "wave_size: no source",
        "-1 is no count",
        "lds_bytes is not a Fact",
        "(7,) is no tuple of load widths",
        "'FNUZ?' is no Fp8",
        "MATRIX_FP16 is given 0 times",
        "MATRIX_BF16 is given 2 times",
        "given twice",
        "product 'MI300X'",
        "which the matrix instructions contradict",
    ):
        assert part in text


def test_a_feature_without_a_source_is_refused() -> None:
    target = TARGETS["gfx950"]
    with pytest.raises(ValueError, match="has no source"):
        replace(target, features=(Has(Feature.MATRIX_FP16, Level.NATIVE, ""), *target.features[1:]))


@pytest.mark.parametrize(
    ("target", "k16", "lds", "swap"),
    [("gfx942", {8, 16}, 65536, Level.EMULATED), ("gfx950", {8, 16, 32}, 163840, Level.NATIVE)],
)
def test_what_tells_the_two_amd_targets_apart(target: str, k16: set[int], lds: int, swap: Level) -> None:
    facts = TARGETS[target]
    assert {matrix.k for matrix in facts.matrix if matrix.in_dtype is DType.FP16} == k16
    assert facts.lds_bytes.value == lds
    assert facts.level(Feature.LANE_SWAP) is swap


def test_only_hopper_starts_a_kernel_before_the_one_in_front_of_it_has_ended() -> None:
    native = {name for name, facts in TARGETS.items() if facts.level(Feature.EARLY_START) is Level.NATIVE}
    assert native == {"sm_90"}


def test_rates_agree_with_the_shapes() -> None:
    """Every 16-bit instruction of gfx942 does 256 multiply-adds a clock and SIMD, which is the peak rate."""
    for matrix in TARGETS["gfx942"].matrix:
        if matrix.in_dtype in (DType.FP16, DType.BF16):
            assert matrix.m * matrix.n * matrix.k == 256 * (matrix.clocks or 0)

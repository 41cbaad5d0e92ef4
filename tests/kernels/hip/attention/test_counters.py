"""Floors of the attention kernel by the emulator's counters, against AITER's and Triton's in the same run."""

from __future__ import annotations

import pytest
from tests.kernels.hip.attention import counters
from tests.kernels.hip.attention.problem import TARGETS

LENGTHS = [512, pytest.param(2048, marks=pytest.mark.full)]


@pytest.mark.parametrize("causal", [False, True], ids=["plain", "causal"])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("target", TARGETS)
def test_head_dim_128_against_aiter(target: str, n: int, causal: bool) -> None:
    ours, theirs = counters.ours(target, n, 128, causal), counters.theirs(target, n, causal)
    assert ours.scratch == 0
    assert ours.ratio <= theirs.ratio
    assert ours.share >= theirs.share
    assert ours.bytes_read <= theirs.bytes_read
    assert ours.conflicts <= theirs.conflicts


@pytest.mark.parametrize("causal", [False, True], ids=["plain", "causal"])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("target", TARGETS)
def test_head_dim_64_against_triton(target: str, n: int, causal: bool) -> None:
    ours, theirs = counters.ours(target, n, 64, causal), counters.triton(target, n, 64, causal)
    assert ours.scratch == 0
    assert ours.share >= 1.3 * theirs.share

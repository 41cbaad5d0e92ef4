"""Merge, sum and append kernels move no more than they must, coalesced, without bank conflicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernels.hip import counters
from tests.kernels.hip.counters import Row

ROOT = Path(__file__).resolve().parents[3]
WASTE = 1.02  # of the ideal bytes


@pytest.fixture(scope="module")
def counted() -> list[Row]:
    return list(counters.rows())


def test_every_byte_is_moved_once(counted: list[Row]) -> None:
    for case, target, found in counted:
        where = f"{case.kernel} {case.shape} on {target}: read {found.bytes_read}, {case.read} needed"
        assert case.read <= found.bytes_read <= WASTE * case.read, where
        assert found.bytes_written == case.written, where


def test_accesses_are_coalesced(counted: list[Row]) -> None:
    for case, target, found in counted:
        assert found.cache_lines == found.cache_lines_ideal, f"{case.kernel} {case.shape} on {target}"


def test_lds_is_free_of_bank_conflicts(counted: list[Row]) -> None:
    assert any(row.counters.lds_cycles for row in counted)
    for case, target, found in counted:
        assert found.lds_cycles == found.lds_ideal_cycles, f"{case.kernel} {case.shape} on {target}"


def test_the_page_says_so(counted: list[Row]) -> None:
    wanted = counters.HEAD + "".join(map(counters._line, counted))
    assert (ROOT / counters.PAGE).read_text(encoding="utf-8") == wanted, "run scripts/kernel_counters"

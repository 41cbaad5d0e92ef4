"""The checks of plan arrays: native and pure Python agree on every fault and fact, over random damage."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from rocade_kernels import _native, checks
from rocade_kernels.checks import Fault


class Table(NamedTuple):
    """A page table that a test may damage."""

    indptr: np.ndarray
    indices: np.ndarray
    last_page_len: np.ndarray
    page_size: int


class Found(NamedTuple):
    """What one level's checks found; the facts count only without a fault."""

    fault: Fault
    at: int
    value: int
    facts: checks.LevelFacts | None


def table(lengths: list[int], page_size: int = 4, first: int = 1) -> Table:
    pages = [-(-n // page_size) for n in lengths]
    indptr = (first + np.concatenate([[0], np.cumsum(pages)])).astype(np.int32)
    last = np.array([(n - 1) % page_size + 1 if n else 99 for n in lengths], np.int32)
    return Table(indptr, np.arange(first + sum(pages) + 2, dtype=np.int32)[::-1].copy(), last, page_size)


def check_table(t: Table, indices: bool = True, qo: list[int] | None = None) -> tuple[Found, list[int]]:
    """Check one level; what was found, and the copies of it."""
    rows = np.array(qo or [], np.int32)
    arrays = checks.Arrays(
        rows.ctypes.data if qo else 0,
        t.indptr.ctypes.data,
        t.last_page_len.ctypes.data if t.page_size else 0,
        t.indices.ctypes.data if indices else 0,
        t.indices.size,
        t.indptr.size - 1,
        t.page_size,
    )
    copies = np.full(arrays.copied, -7, np.int32)
    found = checks.levels([arrays], copies.ctypes.data)
    facts = found.levels[0] if found.fault is Fault.NONE else None
    return Found(found.fault, found.at, found.value, facts), copies.tolist()


@pytest.fixture(params=["native", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(_native, "library_or_none", lambda: None)
    elif _native.library_or_none() is None:
        pytest.skip("no native library, and no compiler to build it")
    return str(request.param)


def test_good_tables(way: str) -> None:
    t = table([5, 0, 9])
    found, copies = check_table(t)
    assert found == (Fault.NONE, 0, 0, (0, 0, 6, 9))
    assert copies == [*t.indptr, *t.last_page_len, 5, 0, 9]
    found, copies = check_table(t, indices=False, qo=[0, 2, 2, 5])
    assert found == (Fault.NONE, 0, 0, (5, 3, -1, 9))
    assert copies == [0, 2, 2, 5, *t.indptr, *t.last_page_len, 5, 0, 9]
    assert check_table(table([]))[0] == (Fault.NONE, 0, 0, (0, 0, -1, 0))


def test_dense_rows(way: str) -> None:
    t = Table(np.array([3, 3, 8], np.int32), np.array([], np.int32), np.array([], np.int32), 0)
    assert check_table(t, qo=[0, 1, 2]) == ((Fault.NONE, 0, 0, (2, 1, -1, 5)), [0, 1, 2, 3, 3, 8, 0, 5])
    assert check_table(t, qo=[1, 1, 2])[0][:3] == (Fault.ROWS_FIRST, 0, 1)
    assert check_table(t, qo=[0, 1, 0])[0][:3] == (Fault.ROWS_DECREASE, 2, 0)


@pytest.mark.parametrize(
    ("indptrs", "want"),
    [
        ([[0, 4], [0, 2, 4], [0, 0, 2, 4, 4]], (Fault.NONE, 0, 0, 2)),
        ([[0, 0, 2, 4, 4], [0, 2, 4]], (Fault.NONE, 0, 0, 1)),
        ([[0, 4], [0, 1, 4], [0, 2, 4]], (Fault.NOT_NESTED, 1, 1, 1)),
        ([[0, 4], [0, 5]], (Fault.ROWS_DIFFER, 1, 5, 0)),
        ([[0, 4], [0, 3, 2, 4]], (Fault.ROWS_DECREASE, 2, 2, 1)),
    ],
)
def test_nesting(way: str, indptrs: list[list[int]], want: tuple[object, ...]) -> None:
    kept = [np.array(qo, np.int32) for qo in indptrs]
    given = [checks.Arrays(qo.ctypes.data, qo.ctypes.data, 0, 0, 0, qo.size - 1, 0) for qo in kept]
    copies = np.zeros(sum(one.copied for one in given), np.int32)
    assert checks.levels(given, copies.ctypes.data)[:4] == want


def test_keys_of_all_levels_beyond_int32(way: str) -> None:
    kept = np.array([0, 2**30], np.int32)
    given = [checks.Arrays(kept.ctypes.data, kept.ctypes.data, 0, 0, 0, 1, 0)] * 2
    copies = np.zeros(sum(one.copied for one in given), np.int32)
    assert checks.levels(given, copies.ctypes.data)[:3] == (Fault.TOO_MANY_KEYS, 0, 2**31)


@pytest.mark.parametrize(
    ("damage", "fault", "at", "value"),
    [
        (lambda t: t.indptr.__setitem__(0, -1), Fault.FIRST, 0, -1),
        (lambda t: t.indptr.__setitem__(2, 2), Fault.DECREASES, 2, 2),
        (lambda t: t.indptr.__setitem__(3, 99), Fault.INDICES_SHORT, 3, 99),
        (lambda t: t.last_page_len.__setitem__(0, 0), Fault.LAST_PAGE_LEN, 0, 0),
        (lambda t: t.last_page_len.__setitem__(2, 5), Fault.LAST_PAGE_LEN, 2, 5),
        (lambda t: t.last_page_len.__setitem__(1, -4), Fault.NONE, 0, 0),  # an empty request's is ignored
        (lambda t: t.indices.__setitem__(3, -2), Fault.NEGATIVE_PAGE, 3, -2),
        (lambda t: t.indices.__setitem__(0, -2), Fault.NONE, 0, 0),  # before indptr[0]
        (lambda t: t.indices.__setitem__(-1, -2), Fault.NONE, 0, 0),  # after indptr[-1]
    ],
)
def test_faults(way: str, damage: Callable[[Table], None], fault: Fault, at: int, value: int) -> None:
    t = table([5, 0, 9])
    damage(t)
    assert check_table(t)[0][:3] == (fault, at, value)


def test_kv_len_beyond_int32(way: str) -> None:
    t = table([5, 9])._replace(page_size=2**31 - 1)
    t.last_page_len[:] = 2
    found, _ = check_table(t)
    assert found[:3] == (Fault.KV_LEN_OVERFLOW, 0, 2**31 - 1 + 2)


@pytest.mark.parametrize(
    ("values", "first", "limit", "want"),
    [
        ([0, 3, 3, 8], 0, 8, (Fault.NONE, 0, 0, 5, 8)),
        ([0], 0, 0, (Fault.NONE, 0, 0, 0, 0)),
        ([2, 3], 0, None, (Fault.FIRST, 0, 2, 0, 0)),
        ([2, 3], None, None, (Fault.NONE, 0, 0, 1, 3)),
        ([-2, 3], None, None, (Fault.FIRST, 0, -2, 0, 0)),
        ([0, 5, 4], 0, None, (Fault.DECREASES, 2, 4, 0, 0)),
        ([0, 5, 9], 0, 8, (Fault.LIMIT, 2, 9, 0, 0)),
        ([0, -(2**31), 2**31 - 1], 0, None, (Fault.DECREASES, 1, -(2**31), 0, 0)),
    ],
)
def test_indptr(
    way: str, values: list[int], first: int | None, limit: int | None, want: tuple[object, ...]
) -> None:
    array = (ctypes.c_int32 * len(values))(*values)
    assert checks.indptr(ctypes.addressof(array), len(values), first=first, limit=limit) == want


def test_native_equals_python_on_random_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    if _native.library_or_none() is None:
        pytest.skip("no native library, and no compiler to build it")
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        t = table(
            [int(n) for n in rng.integers(0, 90, rng.integers(0, 9))],
            int(rng.integers(1, 9)),
            int(rng.integers(0, 4)),
        )
        for array in t[:3]:
            if array.size and rng.random() < 0.3:
                array[rng.integers(array.size)] = rng.integers(-3, 60)
        native = check_table(t)
        with monkeypatch.context() as patch:
            patch.setattr(_native, "library_or_none", lambda: None)
            python = check_table(t)
        assert native[0] == python[0]
        if native[0].fault is Fault.NONE:
            assert native[1] == python[1]
        seen.add(native[0].fault)
    of_one_table = {fault for fault in Fault if fault < Fault.KV_LEN_OVERFLOW}
    assert seen == of_one_table - {Fault.LIMIT}

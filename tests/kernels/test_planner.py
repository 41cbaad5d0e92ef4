"""The planner: every visible (row, key) is covered exactly once, whatever is shared, cut, masked or empty."""

from __future__ import annotations

import ctypes
import time
from typing import NamedTuple

import numpy as np
import pytest

from rocade_kernels import _abi
from rocade_kernels.cpu_plans import (
    ALWAYS_SHARE,
    AUTO_SHARE,
    NEVER_SHARE,
    LevelArrays,
    NativeError,
    NativePlan,
    PlanArgs,
    Unit,
)

MASKS = {"none": _abi.MASK_NONE, "causal": _abi.MASK_CAUSAL}


class Level(NamedTuple):
    """Rows and keys of each request of one level; keys are dense."""

    qo: list[int]
    kv: list[int]


def prefix_sums(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def plan(
    levels: list[Level], *, heads: tuple[int, int] = (8, 2), dim: int = 64, **options: int
) -> NativePlan:
    arrays = [(prefix_sums(x.qo), prefix_sums(x.kv), np.array(x.kv, np.int32)) for x in levels]
    native = [LevelArrays(*(a.ctypes.data for a in x), len(x[2]), 0) for x in arrays]
    args = PlanArgs(sum(levels[0].qo), *heads, dim, dim, _abi.FP32, **options)
    return NativePlan(native, args)


def random_tree(rng: np.random.Generator) -> list[Level]:
    """Up to three levels that nest, with empty requests and empty ranges."""
    leaves = [int(n) for n in rng.choice([0, 1, 1, 2, 7, 60], rng.integers(1, 9))]
    levels = [Level(leaves, [int(n) for n in rng.choice([0, 1, 40, 300, 2000], len(leaves))])]
    for _ in range(rng.integers(0, 3)):
        below, rows = levels[0].qo, []
        while below:
            take = int(rng.integers(1, 4))
            rows.append(sum(below[:take]))
            below = below[take:]
        levels.insert(0, Level(rows, [int(n) for n in rng.choice([0, 5, 500, 3000], len(rows))]))
    return levels


def row_facts(levels: list[Level]) -> tuple[np.ndarray, np.ndarray]:
    """Number of keys and global position of every row."""
    rows = sum(levels[0].qo)
    total = np.zeros(rows, int)
    for level in levels:
        total += np.repeat(level.kv, level.qo)
    lengths = np.repeat(levels[-1].qo, levels[-1].qo)
    first = np.repeat(np.cumsum([0, *levels[-1].qo])[:-1], levels[-1].qo)
    return total, np.arange(rows) - first + total - lengths


def coverage(units: list[Unit], rows: int, keys: int) -> np.ndarray:
    count = np.zeros((rows, keys), int)
    for unit in units:
        count[unit.row_begin : unit.row_end, unit.key_begin : unit.key_end] += 1
    return count


@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize("seed", range(40))
def test_every_visible_pair_is_covered_once(mask: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = random_tree(rng)
    window = int(rng.choice([-1, 0, 30, 700]))
    options = {
        "threads": int(rng.integers(1, 9)),
        "share": int(rng.choice([AUTO_SHARE, NEVER_SHARE, ALWAYS_SHARE])),
        "fixed_split_size": int(rng.choice([0, 0, 17, 1000])),
        "disable_split": int(rng.choice([0, 0, 1])),
    }
    total, position = row_facts(levels)
    units = plan(levels, mask=MASKS[mask], window_left=window, **options).units()
    count = coverage(units, len(total), int(total.max(initial=0)))
    key = np.arange(count.shape[1])
    visible = key < total[:, None]
    if mask == "causal":
        visible &= key <= position[:, None]
    if window >= 0:
        visible &= key >= position[:, None] - window
    assert (count[visible] == 1).all()
    assert count.max(initial=0) <= 1
    assert not (count & (key >= total[:, None])).any()  # never a key that the row does not have
    for unit in units:  # no unit visits keys that none of its rows sees
        rows = visible[unit.row_begin : unit.row_end, unit.key_begin : unit.key_end]
        if not options["fixed_split_size"] and mask == "causal" and window < 0:
            assert rows[:, 0].any()
    check_parts(units, len(total), count)


def check_parts(units: list[Unit], rows: int, count: np.ndarray) -> None:
    """A unit writes the result itself exactly when it alone has its rows; partial rows do not overlap."""
    pieces = np.zeros(rows, int)
    for unit in units:
        pieces[unit.row_begin : unit.row_end] += 1
    used: set[int] = set()
    for unit in units:
        assert (unit.part < 0) == (pieces[unit.row_begin : unit.row_end] == 1).all()
        if unit.part >= 0:
            mine = set(range(unit.part, unit.part + unit.row_end - unit.row_begin))
            assert not mine & used
            used |= mine


def anonymous(units: list[Unit]) -> list[tuple[int, ...]]:
    """Units without the tree they came from."""
    return [(*unit[:4], *unit[6:]) for unit in units]


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("seed", range(10))
def test_without_sharing_the_work_list_is_the_flat_one(threads: int, seed: int) -> None:
    levels = random_tree(np.random.default_rng(100 + seed))
    flat_kv = [0] * len(levels[-1].qo)
    bounds = np.cumsum([0, *levels[-1].qo])
    total, _ = row_facts(levels)
    for i, rows in enumerate(levels[-1].qo):
        if rows:
            flat_kv[i] = int(total[bounds[i]])
    flat = plan([Level(levels[-1].qo, flat_kv)], mask=_abi.MASK_CAUSAL, threads=threads)
    apart = plan(levels, mask=_abi.MASK_CAUSAL, threads=threads, share=NEVER_SHARE)
    assert anonymous(apart.units()) == anonymous(flat.units())


def test_cost_model_shares_long_prefixes_of_many_and_nothing_small() -> None:
    many = [Level([64], [8192]), Level([1] * 64, [128] * 64)]
    assert plan(many, heads=(32, 8), dim=128, threads=2).shared_nodes == 1
    few = [Level([64], [0]), Level([1] * 64, [128] * 64)]
    assert plan(few, heads=(32, 8), dim=128, threads=2).shared_nodes == 0
    lone = [Level([1], [8192]), Level([1], [128])]
    assert plan(lone, heads=(32, 8), dim=128, threads=2).shared_nodes == 0


def test_where_nothing_is_shared_the_plan_equals_the_flat_plan() -> None:
    levels = [Level([1, 1], [4000, 900]), Level([1, 1], [60, 70])]  # each prefix has one reader
    flat = [Level([1, 1], [4060, 970])]
    assert anonymous(plan(levels, threads=2).units()) == anonymous(plan(flat, threads=2).units())


def test_threads_get_nearly_equal_work() -> None:
    rng = np.random.default_rng(5)
    kv = [int(n) for n in rng.integers(1, 9000, 30)]
    units = plan([Level([1] * 30, kv)], threads=4).units()
    sizes = [unit.key_end - unit.key_begin for unit in units]
    assert max(sizes) <= sum(kv) / 4 / 4  # the last item to end is a small part of a thread's work
    assert sizes[0] >= sizes[-1]  # dear ones first


def test_fixed_splits_do_not_depend_on_the_batch() -> None:
    alone = plan([Level([2], [1000])], fixed_split_size=96, threads=1).units()
    together = plan([Level([2, 1, 50], [1000, 9, 4000])], fixed_split_size=96, threads=8).units()
    mine = [u for u in together if u.request == 0]
    assert sorted(u[2:4] for u in mine) == sorted(u[2:4] for u in alone)
    assert all(u.key_begin % 96 == 0 for u in together)


def test_disable_split_keeps_a_range_whole() -> None:
    units = plan([Level([1], [100_000])], disable_split=1, threads=8).units()
    assert [u[2:4] for u in units] == [(0, 100_000)]


BAD: list[tuple[list[Level], dict[str, int], str]] = [
    ([Level([2], [4]), Level([1, 2], [3, 3])], {}, "disagrees"),
    ([Level([2, 1], [4, 4]), Level([1, 2], [3, 3])], {}, "nest"),
    ([Level([1], [2**31 - 1])], {}, "2\\^31"),
    ([Level([1], [4])], {"window_left": -2}, "range"),
    ([Level([1], [4])], {"mask": _abi.MASK_CUSTOM}, "mask"),
    ([Level([1], [2**30])], {"fixed_split_size": 1}, "2\\^31"),
]


@pytest.mark.parametrize(("levels", "options", "text"), BAD)
def test_contradictions_are_refused(levels: list[Level], options: dict[str, int], text: str) -> None:
    with pytest.raises(NativeError, match=text):
        plan(levels, **options)


def test_structs_match_the_header() -> None:
    """The library compares sizes when it is loaded; a wrong one must not load."""
    from rocade_kernels import _native

    sizes = (ctypes.c_int64 * len(_abi.STRUCTS))()
    _native.library().rk_struct_sizes(sizes)
    assert list(sizes) == [s.size for s in _abi.STRUCTS]


def test_planning_1024_requests_takes_microseconds() -> None:
    arrays = [prefix_sums([1] * 1024), prefix_sums([500] * 1024), np.full(1024, 500, np.int32)]
    level = LevelArrays(*(a.ctypes.data for a in arrays), 1024, 0)
    args = PlanArgs(1024, 32, 8, 128, 128, _abi.BF16, threads=2)
    times = []
    for _ in range(200):
        began = time.perf_counter()
        NativePlan([level], args)
        times.append(time.perf_counter() - began)
    assert min(times) < 60e-6  # 25 us measured on an idle machine


@pytest.mark.parametrize("threads", [2, 4])
def test_few_keys_are_cut_by_kv_head_and_many_by_keys(threads: int) -> None:
    """Heads need no merge. Keys beyond the caches are read fastest with all heads side by side."""
    few = plan([Level([1], [1024])], heads=(32, 8), dim=128, threads=threads)
    assert [(unit.key_begin, unit.key_end, unit.part) for unit in few.units()] == [(0, 1024, -1)]
    assert few.num_items >= 2 * threads
    assert few.partial_rows == 0
    many = plan([Level([1], [8192])], heads=(32, 8), dim=128, threads=threads)
    assert len(many.units()) >= 2 * threads
    assert all(unit.heads >= 4 for unit in many.units())
    lone = plan([Level([1], [1024])], heads=(8, 1), dim=128, threads=threads)
    assert len(lone.units()) > 1

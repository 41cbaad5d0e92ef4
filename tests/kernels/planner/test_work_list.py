"""GPU work lists: every visible key of a row and head once, every state merged once, blocks balanced."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernels.planner.lists import AT_POSITIONS, CAUSAL, FEW, MANY, Item, Level, WorkList, by_head, make

from rocade_kernels import _abi
from rocade_kernels.cpu_plans import NativeError
from rocade_kernels.work_lists import GraphLimits, WorkPlanner

MASKS = {"none": _abi.MASK_NONE, "causal": _abi.MASK_CAUSAL}
UNITS = st.sampled_from([1, 2, 3])  # blocks of a compute unit
SHORT = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


class Truth:
    """What the rows of some levels see, by the rules alone."""

    def __init__(self, levels: list[Level], mask: int, window: int) -> None:
        self.levels, self.mask, self.window = levels, mask, window
        self.rows = sum(levels[0].qo)
        ends = [np.repeat(np.arange(len(x.qo)), x.qo) for x in levels]
        self.request = ends  # of each row, level by level
        self.length = np.array([[x.kv[r] for r in rows] for x, rows in zip(levels, ends, strict=True)])
        self.length = self.length.reshape(len(levels), self.rows)
        self.offset = np.cumsum(self.length, 0) - self.length
        last, leaf = ends[-1], levels[-1]
        within = np.arange(self.rows) - np.concatenate([[0], np.cumsum(leaf.qo)])[last].astype(int)
        self.position = self.length.sum(0) - np.array(leaf.qo, int)[last] + within

    def sees(self, level: int, row: int) -> tuple[int, int]:
        """Half-open range of the level's keys, counted from its first."""
        begin, end = 0, int(self.length[level, row])
        own = int(self.position[row] - self.offset[level, row])
        if self.mask == _abi.MASK_CAUSAL:
            end = min(end, own + 1)
        if self.window >= 0:
            begin = max(begin, own - self.window)
        return (begin, end) if begin < end else (0, 0)


def seen_by_kernel(made: WorkList, item: Item, token: int, window: int) -> tuple[int, int]:
    """Keys that the kernel lets one token of an item see: the rules of hip/attention/mask.hpp."""
    begin, end = item.kv_begin, item.kv_end
    position = item.q_position + token
    if made.positions is not None and item.flags & AT_POSITIONS:
        position = made.positions[item.q_begin + token]
    own = position - item.kv_position
    if item.flags & CAUSAL:
        end = min(end, own + 1)
    if window >= 0:
        begin = max(begin, own - window)
    return (begin, end) if begin < end else (0, 0)


def level_of(levels: list[Level], item: Item) -> tuple[int, int]:
    """Level and request that an item's keys are of; levels' entries do not overlap."""
    for number, level in enumerate(levels):
        first = level.first_entry
        for request, keys in enumerate(level.kv):
            entries = -(-keys // level.page_size) if level.page_size else keys
            rows = range(sum(level.qo[:request]), sum(level.qo[: request + 1]))
            within = number == len(levels) - 1 or item.kv_base < levels[number + 1].first_entry
            if item.q_begin in rows and item.kv_base == first and within:
                return number, request
            first += entries
    raise AssertionError(f"{item} is of no request")


def check(made: WorkList, truth: Truth, heads: tuple[int, int]) -> None:
    """Coverage, states and merges of a whole list."""
    group = heads[0] // heads[1]
    visited: dict[tuple[int, int, int], list[tuple[int, int]]] = {}  # level, row, query head
    states: dict[int, tuple[int, int]] = {}  # state: row, KV head
    final = np.zeros((truth.rows, heads[0]), int)
    for item in made.items:
        level, request = level_of(truth.levels, item)
        assert 0 <= item.kv_begin <= item.kv_end <= truth.levels[level].kv[request]
        assert item.kv_heads == 1 or item.state < 0
        packed = made.rows_of(item)
        assert len(packed) > 0
        assert item.row_begin == 0 or group > made.shape(item.shape).rows
        for r in packed:
            token, row = r // group, item.q_begin + r // group
            assert token < item.q_len
            assert truth.request[level][row] == request
            for head in range(item.kv_head, item.kv_head + item.kv_heads):
                keys = seen_by_kernel(made, item, token, truth.window)
                visited.setdefault((level, row, head * group + r % group), []).append(keys)
                if item.state < 0:
                    final[row, head * group + r % group] += 1
                else:
                    assert states.setdefault(item.state + token, (row, head)) == (row, head)
    for level in range(len(truth.levels)):
        for row in range(truth.rows):
            for head in range(heads[0]):
                ranges = sorted(r for r in visited.get((level, row, head), []) if r[0] < r[1])
                begin, end = truth.sees(level, row)
                for low, high in ranges:
                    assert low == begin, (level, row, head, ranges, truth.sees(level, row))
                    begin = high
                assert begin == end, (level, row, head, ranges, truth.sees(level, row))
    check_merges(made, states, final, group)


def check_merges(made: WorkList, states: dict[int, tuple[int, int]], final: np.ndarray, group: int) -> None:
    """Every state is merged once, into its own row and head; a row is either final or merged."""
    assert all(0 <= state < made.facts.num_states for state in states)
    merged = np.zeros_like(final)
    used: set[int] = set()
    for merge in made.merges:
        assert 1 <= merge.rows <= made.args.merge_rows
        assert merge.pieces
        for i in range(merge.rows):
            mine = [piece + i for piece in merge.pieces]
            assert not used & set(mine)
            used.update(mine)
            assert all(states[state] == (merge.row + i, merge.kv_head) for state in mine)
            merged[merge.row + i, merge.kv_head * group : (merge.kv_head + 1) * group] += 1
    assert used == set(states)
    assert ((final + merged) == 1).all()


def nested(leaves: list[int], data: st.DataObject) -> list[Level]:
    """Levels above the leaves, each of whose requests takes whole requests of the level below."""
    levels = [leaves]
    for _ in range(data.draw(st.integers(0, 2))):
        below, above = list(levels[0]), []
        while below:
            take = data.draw(st.integers(1, 3))
            above.append(sum(below[:take]))
            below = below[take:]
        levels.insert(0, above)
    keys = st.sampled_from([0, 1, 15, 64, 65, 200, 700])
    page = data.draw(st.sampled_from([0, 1, 16]))
    made = []
    for number, rows in enumerate(levels):
        kv = [data.draw(keys) for _ in rows]
        made.append(Level(rows, kv, page, number * 1_000_000_000_000))
    return made


@SHORT
@given(st.data())
def test_every_visible_key_is_visited_once_and_every_state_merged_once(data: st.DataObject) -> None:
    leaves = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, 5, 33, 70]), min_size=1, max_size=6))
    levels = nested(leaves, data)
    mask = MASKS[data.draw(st.sampled_from(list(MASKS)))]
    window = data.draw(st.sampled_from([-1, -1, 0, 20, 150]))
    heads = data.draw(st.sampled_from([(1, 1), (4, 4), (8, 2), (6, 2), (5, 1), (20, 1), (24, 1)]))
    options = {
        "fixed_split_size": data.draw(st.sampled_from([0, 0, 48, 128])),
        "disable_split": data.draw(st.sampled_from([0, 0, 1])),
        "few": FEW._replace(blocks=data.draw(st.sampled_from([6, 12, 300])), unit_blocks=data.draw(UNITS)),
        "many": MANY._replace(blocks=data.draw(st.sampled_from([6, 12, 300])), unit_blocks=data.draw(UNITS)),
        "merge_rows": data.draw(st.sampled_from([1, 3, 8])),
        "float_limit": data.draw(st.sampled_from([-1, -1, 0, 100_000, 2_000_000])),
        "launch_ns": data.draw(st.sampled_from([0.0, 3000.0])),
    }
    made = make(levels, heads, mask=mask, window_left=window, **options)
    check(made, Truth(levels, mask, window), heads)


LONG = {
    "decode": ([Level([1] * 3, [30000, 9000, 17])], (8, 2)),
    "one head": ([Level([1], [60000])], (1, 1)),
    "prefill": ([Level([300], [7000])], (2, 1)),
    "both shapes": ([Level([60] + [1] * 20, [40000] + [3000] * 20)], (4, 1)),
    "levels": ([Level([20], [20000]), Level([1] * 20, [500] * 20, 0, 10**12)], (4, 2)),
}


@pytest.mark.parametrize("work", LONG)
def test_partial_states_keep_to_the_memory_there_is(work: str) -> None:
    levels, heads = LONG[work]
    most = make(levels, heads)
    least = make(levels, heads, float_limit=0)
    assert least.facts.float_bytes < most.facts.float_bytes
    whole = {"disable_split": 1}
    assert least.facts.float_bytes == make(levels, heads, **whole).facts.float_bytes
    before = None
    for part in (0.999, 0.8, 0.5, 0.2, 0.05):
        spread = most.facts.float_bytes - least.facts.float_bytes
        limit = least.facts.float_bytes + int(part * spread)
        made = make(levels, heads, float_limit=limit)
        check(made, Truth(levels, _abi.MASK_NONE, -1), heads)
        assert made.facts.float_bytes <= limit
        if work != "prefill":  # whose blocks, if they are fewer, begin where elements do
            assert made.facts.float_bytes - least.facts.float_bytes >= 0.5 * part * spread - 70_000
        assert before is None or made.facts.float_bytes <= before
        before = made.facts.float_bytes


@pytest.mark.parametrize("work", LONG)
def test_a_limit_that_the_plan_keeps_to_anyway_changes_nothing(work: str) -> None:
    levels, heads = LONG[work]
    free = make(levels, heads)
    for limit in (free.facts.float_bytes, 2**62):
        assert make(levels, heads, float_limit=limit).raw == free.raw


@pytest.mark.parametrize("options", [{"fixed_split_size": 256}, {"disable_split": 1}])
def test_a_limit_does_not_touch_splits_that_were_asked_for(options: dict[str, int]) -> None:
    levels, heads = LONG["decode"]
    assert make(levels, heads, float_limit=0, **options).raw == make(levels, heads, **options).raw


def test_the_sizes_of_a_graph_do_not_depend_on_a_limit() -> None:
    levels, heads = LONG["decode"]
    limits = GraphLimits(8, 1, (200_000,))
    assert make(levels, heads, graph=limits, float_limit=0).raw == make(levels, heads, graph=limits).raw


def test_the_same_problem_gives_the_same_bytes() -> None:
    levels = [Level([3, 0, 70, 1], [900, 20, 700, 5000])]
    first = make(levels, mask=_abi.MASK_CAUSAL)
    make([Level([1], [1])])
    assert make(levels, mask=_abi.MASK_CAUSAL).raw == first.raw
    assert make(levels, mask=_abi.MASK_CAUSAL, planner=WorkPlanner()).raw == first.raw


def costs(made: WorkList) -> np.ndarray:
    """Nanoseconds of each block, as the cost model has them: every item pays for itself."""
    blocks = np.zeros((2, max(made.facts.grid)))
    for item in made.items:
        shape = made.shape(item.shape)
        keys = item.kv_end - item.kv_begin
        cost = shape.item_ns + -(-keys // shape.keys) * shape.step_ns
        blocks[item.shape, item.block] += item.kv_heads * cost + (shape.piece_ns if item.state >= 0 else 0)
    used = blocks[blocks.sum(1) > 0]
    assert len(used) == 1
    return used[0]


@pytest.mark.parametrize(
    ("kv", "bound"),
    [
        ([32768], 1.08),
        ([4096] * 16, 1.08),
        ([17, 5000, 300, 20000, 64, 64, 1, 0, 900], 1.10),
        ([1024] * 1024, 1.06),
    ],
)
def test_blocks_of_a_decode_end_together(kv: list[int], bound: float) -> None:
    made = make([Level([1] * len(kv), kv)], (32, 8))
    blocks = costs(made)
    assert len(blocks) == FEW.blocks
    assert blocks.max() / blocks.mean() < bound


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1024, 8192])
def test_blocks_of_a_prefill_end_together(rows: int, causal: bool) -> None:
    made = make([Level([rows], [rows])], (32, 8), mask=_abi.MASK_CAUSAL if causal else _abi.MASK_NONE)
    blocks = costs(made)
    assert len(blocks) == MANY.blocks
    assert blocks.max() / blocks.mean() < 1.15


def test_short_work_is_not_cut() -> None:
    made = make([Level([1], [256])], (8, 8))
    assert made.facts.num_merges == 0
    # One block a head; the others could only help for less than a merge takes.
    assert made.facts.grid == (0, 0, 8, 0)


def test_many_heads_of_a_request_are_one_item() -> None:
    """Lists stay short, so that writing and uploading them does."""
    made = make([Level([1] * 1024, [1024] * 1024)], (32, 8))
    assert made.facts.num_items < 1024 + 9 * FEW.blocks


def test_few_rows_take_the_small_tile_and_many_the_large_one() -> None:
    long = [4000]
    assert {item.shape for item in make([Level([4], long)], (8, 2)).items} == {0}
    assert {item.shape for item in make([Level([4000], long)], (8, 2)).items} == {1}
    mixed = make([Level([2000, 2000, *[1] * 200], [2000, 2000, *[8000] * 200])], (8, 2))
    assert {item.shape for item in mixed.items} == {0, 1}
    for item in mixed.items:
        assert item.shape == (item.q_begin < 4000)


def parts_of(made: WorkList, first_row: int, rows: int) -> list[tuple[int, ...]]:
    """What happens to some rows: everything but places in the whole list."""
    return sorted(
        (i.shape, i.q_begin - first_row, i.q_len, i.row_begin, h, i.kv_begin, i.kv_end, i.q_position)
        for i in made.items
        if first_row <= i.q_begin < first_row + rows
        for h in range(i.kv_head, i.kv_head + i.kv_heads)
    )


@pytest.mark.parametrize("options", [{"fixed_split_size": 256}, {"disable_split": 1}])
def test_fixed_splits_do_not_depend_on_the_batch(options: dict[str, int]) -> None:
    alone = make([Level([3], [3000])], **options)
    together = make([Level([70, 3, 1, 1], [500, 3000, 40000, 7])], **options)
    assert parts_of(alone, 0, 3) == parts_of(together, 70, 3)
    merges = [
        sorted(len(m.pieces) for m in made.merges if m.row - at in range(3))
        for made, at in ((alone, 0), (together, 70))
    ]
    assert merges[0] == merges[1]


def test_no_keys_at_all() -> None:
    empty = make([Level([], [])])
    assert empty.items == []
    assert empty.facts.grid == (0, 0, 0, 0)
    assert empty.facts.merge_grid == 0
    rows = make([Level([2, 0, 3], [0, 50, 0])])
    assert {(i.q_begin, i.q_len) for i in rows.items} == {(0, 2), (2, 3)}
    assert all(i.kv_begin == i.kv_end for i in rows.items)
    assert rows.merges == []


def test_keys_near_2_to_31() -> None:
    keys = 2**31 - 2**16 - 1
    levels = [Level([1], [keys], page_size=16, first_entry=-(2**40))]
    made = make(levels, (4, 1), window_left=100)
    assert [(i.kv_begin, i.kv_end, i.kv_base) for i in made.items] == [(keys - 101, keys, -(2**40))]
    whole = make(levels, (4, 1))
    ranges = sorted((i.kv_begin, i.kv_end) for i in whole.items)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == keys
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    with pytest.raises(NativeError, match="more keys"):
        make([Level([1], [2**31 - 1], page_size=16)], (4, 1))


def test_custom_masks_start_at_their_requests_byte() -> None:
    indptr = np.array([0, 5, 100], np.int64)
    levels = [Level([2, 40], [20, 19])]
    made = make(levels, (32, 1), mask=_abi.MASK_CUSTOM, mask_indptr=indptr.ctypes.data)
    for item in made.items:
        first, keys, byte = (0, 20, 0) if item.q_begin < 2 else (2, 19, 5)
        assert item.mask_step == keys
        assert item.mask_bit == 8 * byte + (item.q_begin - first) * keys
        assert item.flags == 0


LIMITS = GraphLimits(max_rows=300, max_rows_request=300, max_keys=(60000,))


@pytest.mark.parametrize("options", [{}, {"fixed_split_size": 512}, {"disable_split": 1}])
def test_graph_plans_have_the_same_places_and_the_same_work(options: dict[str, int]) -> None:
    batches = [
        Level([1] * 6, [9000] * 6),
        Level([250, 50, 0, 0, 0, 0], [20000, 3, 0, 0, 0, 0]),
        Level([0] * 6, [0] * 6),
        Level([100, 1, 1, 1, 1, 1], [100, 59000, 1, 0, 5, 100]),
    ]
    places = set()
    for level in batches:
        made = make([level], (8, 2), graph=LIMITS, mask=_abi.MASK_CAUSAL, **options)
        free = make([level], (8, 2), mask=_abi.MASK_CAUSAL, **options)
        assert by_head(made) == by_head(free)
        assert made.merges == free.merges
        f = made.facts
        assert f.bytes <= f.capacity
        places.add(f._replace(bytes=0, num_items=0, num_merges=0, num_states=0))
        assert f.grid == (0, 0, FEW.blocks, MANY.blocks)
    assert len(places) == 1


def test_a_decode_graph_needs_no_kernel_for_many_rows() -> None:
    limits = GraphLimits(max_rows=6, max_rows_request=1, max_keys=(60000,))
    made = make([Level([1] * 6, [9000] * 6)], (32, 8), graph=limits)
    assert made.facts.grid == (0, 0, FEW.blocks, 0)
    assert made.facts.merge_grid > 0


def test_plans_beyond_the_limits_of_a_graph_are_refused() -> None:
    with pytest.raises(NativeError):
        make([Level([301], [400])], graph=LIMITS)
    narrow = GraphLimits(max_rows=300, max_rows_request=2, max_keys=(60000,))
    with pytest.raises(NativeError):
        make([Level([300], [3000])], (8, 2), graph=narrow)


@pytest.mark.parametrize("rows", [0, -1, 1 << 20])
def test_senseless_shapes_are_refused(rows: int) -> None:
    with pytest.raises(NativeError):
        make([Level([1], [1])], few=FEW._replace(rows=rows))


def test_arrays_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(NativeError, match="nest"):
        make([Level([2, 2], [5, 5], 0, 0), Level([1, 3], [5, 5], 0, 10**12)])

"""find_shared_prefixes: levels read like the given tables, and no others would read fewer pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rocade.cascade import MultiLevelCascadeAttentionWrapper
from rocade.decode import BatchDecodeWithPagedKVCacheWrapper
from rocade.prefill import BatchPrefillWithPagedKVCacheWrapper
from rocade.prefix import CascadeLevels, find_shared_prefixes

PAGE_SIZE = 4
Rows = Sequence[tuple[Sequence[int], int]]  # page ids and keys in the last page, of each request


def ints(values: Iterable[int]) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.int32)


def table(rows: Rows, first: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A page table, with `first` entries before it and one after it that belong to nobody."""
    ids = [-5] * first + [page for pages, _ in rows for page in pages] + [-5]
    return (
        ints(itertools.accumulate((len(p) for p, _ in rows), initial=first)),
        ints(ids),
        ints(n for _, n in rows),
    )


def full(pages: Sequence[int], last: int) -> Sequence[int]:
    """The pages that may be shared."""
    return pages if last == PAGE_SIZE else pages[:-1]


def read_back(levels: CascadeLevels, num_rows: int) -> list[tuple[list[int], int]]:
    """Page ids and last page length of each request, its levels put together."""
    rows: list[tuple[list[int], int]] = [([], 0) for _ in range(num_rows)]
    for qo, indptr, ids, last in zip(*levels, strict=True):
        qo, indptr = qo.tolist(), indptr.tolist()
        assert qo[0] == 0
        assert qo[-1] == num_rows
        for i, (begin, end) in enumerate(itertools.pairwise(qo)):
            pages = ids[indptr[i] : indptr[i + 1]].tolist()
            assert int(last[i]) in (range(1, PAGE_SIZE + 1) if pages else (0,))
            for row in range(begin, end):
                assert not pages or not rows[row][0] or rows[row][1] == PAGE_SIZE, "a page inside is not full"
                rows[row] = rows[row][0] + pages, int(last[i]) if pages else rows[row][1]
    return rows


def nested(levels: CascadeLevels) -> bool:
    """Whether each level's boundaries are boundaries of the next."""
    bounds = [set(qo.tolist()) for qo in levels.qo_indptr_arr]
    return all(outer <= inner for outer, inner in itertools.pairwise(bounds))


def pages_read(levels: CascadeLevels) -> int:
    return sum(ids.numel() for ids in levels.paged_kv_indices_arr)


def fewest(rows: Rows, max_shared: int, shared: int = 0) -> int:
    """The fewest page ids that levels can read, by trying every way to cut the rows into groups."""
    if not rows:
        return 0
    rest = fewest(rows[1:], max_shared, shared) + len(rows[0][0]) - shared
    if max_shared == 0:
        return rest
    for size in range(2, len(rows) + 1):
        group = rows[:size]
        heads = [full(*row) for row in group]
        common = len(list(itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*heads, strict=False))))
        for extra in range(1, common - shared + 1):
            inside = fewest(group, max_shared - 1, shared + extra)
            rest = min(rest, extra + inside + fewest(rows[size:], max_shared, shared))
    return rest


row = st.tuples(st.lists(st.integers(0, 1), max_size=4), st.integers(1, PAGE_SIZE))


@given(st.lists(row, max_size=6), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_levels_read_like_the_tables(rows: Rows, first: int) -> None:
    levels = find_shared_prefixes(*table(rows, first), PAGE_SIZE)
    expected = [(list(pages), last if pages else 0) for pages, last in rows]
    assert read_back(levels, len(rows)) == expected
    assert nested(levels)


@given(st.lists(row, max_size=5), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_no_other_levels_read_fewer_pages(rows: Rows, max_levels: int) -> None:
    levels = find_shared_prefixes(*table(rows), PAGE_SIZE, max_levels=max_levels)
    assert levels.num_levels <= max_levels
    assert pages_read(levels) == fewest(rows, max_levels - 1)
    assert read_back(levels, len(rows)) == [(list(p), n if p else 0) for p, n in rows]


@given(st.lists(row, max_size=6), st.integers(1, 3), st.none() | st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_short_prefixes_are_left_alone(rows: Rows, min_pages: int, max_levels: int | None) -> None:
    levels = find_shared_prefixes(*table(rows), PAGE_SIZE, min_shared_pages=min_pages, max_levels=max_levels)
    for indptr in levels.paged_kv_indptr_arr[:-1]:
        sizes = indptr.diff()
        assert sizes[sizes > 0].ge(min_pages).all()
    assert read_back(levels, len(rows)) == [(list(p), n if p else 0) for p, n in rows]


def test_a_tree_of_prefixes() -> None:
    system, few_shot, other = [3, 1, 4], [1, 5], [9]
    rows = [
        (system + few_shot + [20], 1),
        (system + few_shot + [21, 22], 4),
        (system + other, 4),
        (system + other, 4),
    ]
    levels = find_shared_prefixes(*table(rows), PAGE_SIZE)
    assert [qo.tolist() for qo in levels.qo_indptr_arr] == [[0, 4], [0, 2, 4], [0, 1, 2, 3, 4]]
    assert [ids.tolist() for ids in levels.paged_kv_indices_arr] == [[3, 1, 4], [1, 5, 9], [20, 21, 22]]
    assert [last.tolist() for last in levels.paged_kv_last_page_len] == [[4], [4, 4], [1, 4, 0, 0]]
    assert all(t.dtype == torch.int32 for arrays in levels for t in arrays)


def test_only_full_pages_and_only_neighbours_share() -> None:
    partial = find_shared_prefixes(*table([([7], 3), ([7], 3)]), PAGE_SIZE)
    assert partial.num_levels == 1
    apart = find_shared_prefixes(*table([([7, 1], 1), ([8], 1), ([7, 2], 1)]), PAGE_SIZE)
    assert apart.num_levels == 1
    assert apart.paged_kv_indices_arr[0].tolist() == [7, 1, 8, 7, 2]
    assert apart.paged_kv_indptr_arr[0].tolist() == [0, 2, 3, 5]


def test_query_rows_and_padding_levels() -> None:
    rows = [([1, 2], 4), ([1, 3], 4), ([5], 2)]
    levels = find_shared_prefixes(*table(rows), PAGE_SIZE, ints([0, 4, 4, 9]), max_levels=4, pad_levels=True)
    assert [qo.tolist() for qo in levels.qo_indptr_arr] == [[0, 4, 9]] + [[0, 4, 4, 9]] * 3
    assert [ids.tolist() for ids in levels.paged_kv_indices_arr] == [[1], [], [], [2, 3, 5]]


def random_batch(seed: int) -> tuple[Rows, int]:
    """Requests drawn from a random tree of prompts, in tree order; and the number of pages they use."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    fresh = itertools.count()
    rows: list[tuple[list[int], int]] = []

    def grow(head: list[int], depth: int) -> None:
        head = head + [next(fresh) for _ in range(draw(0, 4))]
        for _ in range(draw(2, 4)):
            if depth and draw(0, 2):
                grow(head, depth - 1)
            else:
                rows.append((head + [next(fresh) for _ in range(draw(1, 3))], draw(1, PAGE_SIZE + 1)))

    grow([next(fresh)], 3)
    return rows, next(fresh)


def test_prefixes_nest_as_deep_as_the_batch_has_requests() -> None:
    """Every request reads one page more of one conversation than the request before it."""
    rows = [([*range(b + 1), 100 + b], 1) for b in range(100)]
    levels = find_shared_prefixes(*table(rows), PAGE_SIZE)
    assert levels.num_levels == 100
    cache, q = torch.randn(200, 2, PAGE_SIZE, 2, 16), torch.randn(100, 4, 16)
    decode = BatchDecodeWithPagedKVCacheWrapper(torch.empty(1 << 20, dtype=torch.uint8))
    decode.plan(*table(rows), 4, 2, 16, PAGE_SIZE, q_data_type="float32")
    cascade = MultiLevelCascadeAttentionWrapper(100, torch.empty(1 << 20, dtype=torch.uint8))
    cascade.plan(*levels, 4, 2, 16, PAGE_SIZE, q_data_type="float32")
    torch.testing.assert_close(cascade.run(q, cache), decode.run(q, cache), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("max_levels", [None, 2])
@pytest.mark.parametrize("seed", range(6))
def test_cascade_attention_equals_unshared_attention(seed: int, max_levels: int | None) -> None:
    rows, num_pages = random_batch(seed)
    torch.manual_seed(seed)
    cache, workspace = torch.randn(num_pages, 2, PAGE_SIZE, 2, 16), torch.empty(1 << 20, dtype=torch.uint8)
    levels = find_shared_prefixes(*table(rows), PAGE_SIZE, max_levels=max_levels)
    assert levels.num_levels > 1
    decode = BatchDecodeWithPagedKVCacheWrapper(workspace)
    decode.plan(*table(rows), 4, 2, 16, PAGE_SIZE, q_data_type="float32")
    cascade = MultiLevelCascadeAttentionWrapper(levels.num_levels, workspace)
    cascade.plan(*levels, 4, 2, 16, PAGE_SIZE, q_data_type="float32")
    q = torch.randn(len(rows), 4, 16)
    got, expected = cascade.run(q, cache, return_lse=True), decode.run(q, cache, return_lse=True)
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_causal_queries_inside_a_shared_prefix_see_only_what_they_should(seed: int) -> None:
    rows, num_pages = random_batch(seed)
    torch.manual_seed(seed)
    cache, workspace = torch.randn(num_pages, 2, PAGE_SIZE, 2, 16), torch.empty(1 << 20, dtype=torch.uint8)
    lengths = [min((len(pages) - 1) * PAGE_SIZE + last, 11) for pages, last in rows]
    qo_indptr = ints(itertools.accumulate(lengths, initial=0))
    flags = {"causal": True, "window_left": 13, "q_data_type": "float32"}
    prefill = BatchPrefillWithPagedKVCacheWrapper(workspace)
    prefill.plan(qo_indptr, *table(rows), 4, 2, 16, PAGE_SIZE, **flags)
    levels = find_shared_prefixes(*table(rows), PAGE_SIZE, qo_indptr)
    cascade = MultiLevelCascadeAttentionWrapper(levels.num_levels, workspace)
    cascade.plan(*levels, 4, 2, 16, PAGE_SIZE, **flags)
    q = torch.randn(int(qo_indptr[-1]), 4, 16)
    got, expected = cascade.run(q, cache, return_lse=True), prefill.run(q, cache, return_lse=True)
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)


GOOD = table([([1, 2], 3), ([1, 4], 4)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"paged_kv_indptr": ints([0, 2, 1])}, r"paged_kv_indptr\[2\]: got 1"),
        ({"paged_kv_indptr": ints([0, 2])}, "paged_kv_indptr: got 2 entries"),
        ({"paged_kv_indices": ints([1, 2, 1])}, "paged_kv_indices: got 3 page indices"),
        ({"paged_kv_last_page_len": ints([3, 5])}, r"paged_kv_last_page_len\[1\]: got 5"),
        ({"page_size": 0}, "page_size: got 0"),
        ({"qo_indptr": ints([0, 1])}, "qo_indptr: got 1 requests"),
        ({"qo_indptr": ints([1, 1, 2])}, r"qo_indptr\[0\]: got 1"),
        ({"min_shared_pages": 0}, "min_shared_pages: got 0"),
        ({"max_levels": 0}, "max_levels: got 0"),
        ({"pad_levels": True}, "max_levels: got None"),
    ],
)
def test_malformed_input_is_named(change: dict[str, object], message: str) -> None:
    names = ("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")
    arguments = dict(zip(names, GOOD, strict=True)) | {"page_size": PAGE_SIZE}
    with pytest.raises(ValueError, match=f"^{message}"):
        find_shared_prefixes(**(arguments | change))

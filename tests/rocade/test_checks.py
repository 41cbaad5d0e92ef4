"""Plan arrays: each way to be malformed raises with the argument's name, and good ones are private copies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.rocade.paged import int32

from rocade import _checks, cascade, page
from rocade._checks import Given
from rocade._problem import Level

CPU = torch.device("cpu")
GOOD = ([0, 2, 2, 3], [4, 0, 7], [4, 0, 1])
Arrays = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture(params=["native", "python"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with the native checks and with their Python twin."""
    from rocade_kernels import _native

    if request.param == "python":
        monkeypatch.setattr(_native, "library_or_none", lambda: None)
    elif _native.library_or_none() is None:
        pytest.skip("no native library here")


def arrays(indptr: list[int], indices: list[int], last: list[int]) -> Arrays:
    return int32(indptr), int32(indices), int32(last)


def pages(given: Arrays, page_size: int = 4) -> _checks.Pages:
    return _checks.pages(*given, page_size, CPU)


def test_a_good_table_gives_lengths_and_the_largest_page() -> None:
    found = pages(arrays(*GOOD))
    assert found.kv_len.tolist() == [8, 0, 1]
    assert (found.max_kv_len, found.table.max_page) == (8, 7)


def test_a_table_may_start_above_zero_and_have_spare_indices() -> None:
    found = pages(arrays([1, 3, 4], [-5, 2, 1, 3, -9], [3, 4]))
    assert found.kv_len.tolist() == [7, 4]
    assert found.table.max_page == 3


def test_the_last_page_len_of_an_empty_request_does_not_matter() -> None:
    assert pages(arrays([0, 0, 1], [0], [77, 2])).kv_len.tolist() == [0, 2]


def test_an_empty_batch_is_a_table() -> None:
    found = pages(arrays([0], [], []))
    assert (found.kv_len.numel(), found.max_kv_len, found.table.max_page) == (0, 0, -1)


def test_int64_arrays_are_converted() -> None:
    given = tuple(t.to(torch.int64) for t in arrays(*GOOD))
    found = pages(given)  # type: ignore[arg-type]
    assert found.table.indices.dtype is found.table.indptr.dtype is torch.int32
    assert found.kv_len.tolist() == [8, 0, 1]


def test_strided_arrays_are_read_as_they_are() -> None:
    given = tuple(torch.stack((t, t + 1000), 1)[:, 0] for t in arrays(*GOOD))
    assert not given[0].is_contiguous()
    assert pages(given).kv_len.tolist() == [8, 0, 1]  # type: ignore[arg-type]


def test_the_plan_keeps_its_own_lengths_when_the_caller_reuses_its_buffers() -> None:
    given = arrays(*GOOD)
    found = pages(given)
    rows = _checks.rows("qo_indptr", given[0])
    for array in (given[0], given[2]):
        array.fill_(10**6)
    assert found.table.indptr.tolist() == rows.indptr.tolist() == GOOD[0]
    assert found.table.last_page_len.tolist() == GOOD[2]


def test_page_ids_on_the_caches_device_are_the_callers_tensor() -> None:
    given = arrays(*GOOD)
    assert pages(given).table.indices.data_ptr() == given[1].data_ptr()


Change = Callable[[Arrays], Arrays]


def put(which: int, at: int, value: int) -> Change:
    def change(given: Arrays) -> Arrays:
        given[which][at] = value
        return given

    return change


def swap(which: int, array: object) -> Change:
    return lambda given: tuple(array if i == which else t for i, t in enumerate(given))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (put(0, 0, -1), r"paged_kv_indptr\[0\]: got -1, expected 0 or more"),
        (put(0, 2, 1), r"paged_kv_indptr\[2\]: got 1, expected at least paged_kv_indptr\[1\]"),
        (put(0, 3, 4), "paged_kv_indices: got 3 page indices, expected at least 4"),
        (put(1, 2, -1), r"paged_kv_indices\[2\]: got -1"),
        (put(2, 0, 0), r"paged_kv_last_page_len\[0\]: got 0, expected 1 to page_size \(4\)"),
        (put(2, 2, 5), r"paged_kv_last_page_len\[2\]: got 5"),
        (put(2, 0, -3), r"paged_kv_last_page_len\[0\]: got -3"),
        (swap(0, int32([0, 2, 3])), "paged_kv_indptr: got 3 entries, expected 4"),
        (swap(0, torch.zeros(4)), "paged_kv_indptr: got torch.float32, expected int32"),
        (swap(1, torch.zeros(3, 1, dtype=torch.int32)), "paged_kv_indices: got shape"),
        (swap(2, [4, 0, 1]), "paged_kv_last_page_len: got list"),
        (swap(1, None), "paged_kv_indices: got NoneType"),
        (swap(2, torch.zeros(3, dtype=torch.int16)), "paged_kv_last_page_len: got torch.int16"),
        (
            swap(1, torch.tensor([4, 2**32, 7])),
            "paged_kv_indices: got 4294967296, expected values that int32",
        ),
        (swap(0, torch.tensor([0, 2, 2, -(2**40)])), "paged_kv_indptr: got -1099511627776"),
    ],
)
def test_a_malformed_table_is_named(change: Change, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        pages(change(arrays(*GOOD)))


def test_a_page_size_below_one_and_another_batch_size_are_refused() -> None:
    with pytest.raises(ValueError, match="page_size: got 0"):
        pages(arrays(*GOOD), page_size=0)
    with pytest.raises(ValueError, match="paged_kv_last_page_len: got 3 requests, expected 4, as many as qo"):
        _checks.one_level(Given(int32([0, 1, 2, 3, 4]), *arrays(*GOOD)), 4, CPU)


def test_a_request_longer_than_int32_is_refused() -> None:
    with pytest.raises(ValueError, match="paged_kv_indptr: got request 0 of 3221225473 tokens"):
        pages(arrays([0, 4], [0, 0, 0, 0], [1]), page_size=2**30)


def test_rows_give_total_and_longest() -> None:
    found = _checks.rows("qo_indptr", int32([0, 3, 3, 8]))
    assert (found.batch, found.total, found.longest) == (3, 8, 5)
    assert _checks.rows("kv_indptr", int32([5, 6]), first=None).longest == 1
    assert _checks.rows("qo_indptr", int32([0])).batch == 0


@pytest.mark.parametrize(
    ("indptr", "first", "named"),
    [
        ([1, 2], 0, r"qo_indptr\[0\]: got 1, expected 0"),
        ([-1, 2], None, r"qo_indptr\[0\]: got -1, expected 0 or more"),
        ([0, 3, 2], 0, r"qo_indptr\[2\]: got 2, expected at least"),
        ([], 0, "qo_indptr: got no entries"),
    ],
)
def test_malformed_rows_are_named(indptr: list[int], first: int | None, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        _checks.rows("qo_indptr", int32(indptr), first=first)


def levels(*indptrs: list[int], tokens: int = 1) -> tuple[Level, ...]:
    """Levels with these query rows, each request of which has one page of `tokens`."""
    names = [_checks.PageNames(qo_indptr=name) for name in "abc"]
    given = [
        Given(int32(qo), int32(range(len(qo))), int32([0] * (len(qo) - 1)), int32([tokens] * (len(qo) - 1)))
        for qo in indptrs
    ]
    return _checks.levels(given, 2**31 - 1, CPU, lambda index: names[index])[0]


def test_levels_are_copies_in_one_piece_of_memory() -> None:
    outer, inner = levels([0, 4], [0, 1, 1, 4])
    assert (outer.num_requests, inner.num_requests) == (1, 3)
    assert outer.qo_indptr.tolist() == [0, 4]
    assert inner.qo_indptr.tolist() == [0, 1, 1, 4]
    assert inner.kv_len.tolist() == [1, 1, 1]
    assert inner.pages is not None
    assert inner.pages.indptr.tolist() == [0, 1, 2, 3]
    assert inner.pages.last_page_len.tolist() == [1, 1, 1]
    held = (inner.qo_indptr, inner.pages.indptr, inner.kv_len)
    assert inner.addresses() == tuple(array.data_ptr() for array in held)


def test_dense_levels_have_the_lengths_of_their_rows() -> None:
    level, facts = _checks.one_level(Given(int32([0, 2, 3]), int32([5, 9, 9])), 0, CPU)
    assert level.kv_len.tolist() == [4, 0]
    assert level.kv_indptr is not None
    assert level.kv_indptr.tolist() == [5, 9, 9]
    assert facts == (3, 2, -1, 4)
    with pytest.raises(ValueError, match="paged_kv_indptr: got 1 requests, expected 2, as many as qo_indptr"):
        _checks.one_level(Given(int32([0, 2, 3]), int32([5, 9])), 0, CPU)
    with pytest.raises(ValueError, match="paged_kv_indptr: got no entries"):
        _checks.one_level(Given(int32([0]), int32([])), 0, CPU)
    with pytest.raises(ValueError, match="qo_indptr: got no entries"):
        _checks.one_level(Given(int32([]), int32([0])), 0, CPU)


def test_nesting() -> None:
    levels([0, 4], [0, 2, 4], [0, 1, 2, 4])
    levels([0, 0, 4, 4], [0, 4])
    with pytest.raises(ValueError, match=r"^a\[1\]: got 1, expected a boundary"):
        levels([0, 1, 4], [0, 2, 4])
    with pytest.raises(ValueError, match=r"^b\[2\]: got 3, expected a boundary"):
        levels([0, 4], [0, 2, 3, 4], [0, 2, 4])
    with pytest.raises(ValueError, match=r"^a: got 3 rows, expected 4"):
        levels([0, 3], [0, 2, 4])
    with pytest.raises(ValueError, match=r"^b\[0\]: got 1, expected 0"):
        levels([0, 4], [1, 4])
    with pytest.raises(ValueError, match=r"^b\[2\]: got 3, expected at least b\[1\]"):
        levels([0, 4], [0, 5, 3, 4])


def test_levels_that_hold_more_keys_together_than_int32_are_refused() -> None:
    levels([0, 4], tokens=2**31 - 1)
    with pytest.raises(ValueError, match="got up to 4294967294 keys a row over all levels"):
        levels([0, 4], [0, 4], tokens=2**31 - 1)


def test_lengths_that_repeat_the_arrays_must_agree() -> None:
    expected = int32([8, 0, 1])
    _checks.lengths_match("seq_lens", torch.tensor([[8], [0], [1]]), expected)
    with pytest.raises(ValueError, match=r"seq_lens\[2\]: got 2, expected 1"):
        _checks.lengths_match("seq_lens", int32([8, 0, 2]), expected)
    with pytest.raises(ValueError, match="seq_lens: got 2, expected a tensor of 3"):
        _checks.lengths_match("seq_lens", int32([8, 0]), expected)
    with pytest.raises(ValueError, match="max_sequence_kv: got 7, expected at least 8"):
        _checks.at_least("max_sequence_kv", 7, 8)


def test_arrays_on_a_device_are_checked_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for a device's tensor, of which this machine has none that holds values."""

    class OnDevice(torch.Tensor):
        is_cpu = False

    ids = int32([4, -1]).as_subclass(OnDevice)
    lengths = int32([8, 0, 2]).as_subclass(OnDevice)
    assert _checks._readable(ids) is None
    _checks.lengths_match("seq_lens", lengths, int32([8, 0, 1]))
    monkeypatch.setenv("ROCADE_VALIDATE", "1")
    assert _checks._readable(ids).tolist() == [4, -1]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"seq_lens\[2\]: got 2, expected 1"):
        _checks.lengths_match("seq_lens", lengths, int32([8, 0, 1]))


def test_tokens_and_row_ranges_on_a_device_are_checked_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are not, what lies outside is skipped."""

    class OnDevice(torch.Tensor):
        is_cpu = False

    def on_device(*values: int) -> torch.Tensor:
        return int32(values).as_subclass(OnDevice)

    kv, cache = torch.ones(1, 1, 8), torch.zeros(2, 2, 4, 1, 8)
    table = on_device(1), on_device(0, 1), on_device(3)
    states = torch.ones(2, 1, 8), torch.ones(2, 1)
    calls = {
        r"positions: got 7, expected 0 to 3": lambda: page.append_paged_kv_cache(
            kv, kv, on_device(0), on_device(7), cache, *table
        ),
        r"batch_indices: got 1, expected -1 to skip": lambda: page.append_paged_kv_cache(
            kv, kv, on_device(1), on_device(0), cache, *table
        ),
        r"seq_lens\[0\]: got 1, expected at least the 2": lambda: page.get_batch_indices_positions(
            on_device(0, 2), on_device(1), 2
        ),
        r"indptr\[-1\]: got 3": lambda: cascade.variable_length_merge_states(*states, on_device(0, 3)),
    }
    for call in calls.values():
        call()
    assert not cache.any()
    monkeypatch.setenv("ROCADE_VALIDATE", "1")
    for message, call in calls.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_page_ids_on_a_device_are_not_read() -> None:
    indices = torch.empty(3, dtype=torch.int64, device="meta")
    table = _checks.pages(int32(GOOD[0]), indices, int32(GOOD[2]), 4, torch.device("meta")).table
    assert (table.max_page, table.indices.device.type, table.indices.dtype) == (-1, "meta", torch.int32)

"""Checks of plan arrays on the host, by address: one native call an array, or a pure-Python twin.

Addresses are `tensor.data_ptr()` of contiguous int32 host arrays that the caller keeps alive. Nothing is
raised here: the caller knows the argument's name and words the error from `fault`, `at` and `value`.
"""

from __future__ import annotations

import ctypes
import enum
from typing import NamedTuple

from rocade_kernels import _native

INT32_MAX = 2**31 - 1


class Fault(enum.IntEnum):
    """The first thing found wrong; `at` and `value` of the result say where and what."""

    NONE = 0
    FIRST = 1  # indptr[0] (value) is not what it must be, or negative
    DECREASES = 2  # indptr[at] (value) is below indptr[at - 1]
    LIMIT = 3  # indptr[at] (value), the last entry, is above the limit
    LAST_PAGE_LEN = 4  # last_page_len[at] (value) is outside 1..page_size, of a request that has pages
    INDICES_SHORT = 5  # indptr[at] (value), the last entry, is above the number of page indices
    NEGATIVE_PAGE = 6  # indices[at] (value) is negative, within indptr[0]:indptr[-1]
    KV_LEN_OVERFLOW = 7  # request `at` has `value` tokens, more than int32 holds


class IndptrFacts(NamedTuple):
    """What one pass over an indptr found. `longest` and `last` are 0 when a fault was found."""

    fault: Fault
    at: int
    value: int
    longest: int  # max of indptr[i + 1] - indptr[i], 0 for no requests
    last: int  # indptr[-1]


class PageFacts(NamedTuple):
    """What one pass over a page table found. The last three are -1, 0, 0 when a fault was found."""

    fault: Fault
    at: int
    value: int
    max_page: int  # largest page id in indptr[0]:indptr[-1]; -1 for none, or when indices were not given
    max_kv_len: int  # tokens of the longest request
    max_pages: int  # pages of the request with the most


def indptr(address: int, entries: int, *, first: int | None = 0, limit: int | None = None) -> IndptrFacts:
    """Check an int32 indptr of `entries` (B + 1, at least 1): its first entry, its order, its last entry.

    `first=None` allows any first entry that is not negative. `limit` is the most that the last entry may be.
    """
    lib = _native.library_or_none()
    if lib is None:
        return _indptr(address, entries, first, limit)
    facts = (ctypes.c_int64 * 4)()
    fault = lib.rk_check_indptr(
        address, entries, -1 if first is None else first, -1 if limit is None else limit, facts
    )
    return IndptrFacts(Fault(fault), *facts)


def page_table(
    *,
    indptr: int,
    batch: int,
    indices: int | None,
    num_indices: int,
    last_page_len: int,
    page_size: int,
    kv_len: int,
) -> PageFacts:
    """Check a page table and write int32 `kv_len[batch]`, tokens of each request.

    `indptr [batch + 1]`, `last_page_len [batch]`, `kv_len [batch]` are host addresses;
    `indices [num_indices]` is one too, or None when the page ids live on a device and are not to be read.
    """
    lib = _native.library_or_none()
    if lib is None:
        return _page_table(indptr, batch, indices, num_indices, last_page_len, page_size, kv_len)
    facts = (ctypes.c_int64 * 5)()
    fault = lib.rk_check_page_table(
        indptr, batch, indices or None, num_indices, last_page_len, page_size, kv_len, facts
    )
    return PageFacts(Fault(fault), *facts)


def _view(address: int, count: int) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * count).from_address(address) if count else (ctypes.c_int32 * 0)()


def _indptr_fault(array: ctypes.Array[ctypes.c_int32], first: int | None) -> tuple[Fault, int, int]:
    if array[0] < 0 or (first is not None and array[0] != first):
        return Fault.FIRST, 0, array[0]
    for at in range(1, len(array)):
        if array[at] < array[at - 1]:
            return Fault.DECREASES, at, array[at]
    return Fault.NONE, 0, 0


def _indptr(address: int, entries: int, first: int | None, limit: int | None) -> IndptrFacts:
    array = _view(address, entries)
    fault, at, value = _indptr_fault(array, first)
    if fault is Fault.NONE and limit is not None and array[-1] > limit:
        fault, at, value = Fault.LIMIT, entries - 1, array[-1]
    if fault is not Fault.NONE:
        return IndptrFacts(fault, at, value, 0, 0)
    longest = max((array[i + 1] - array[i] for i in range(entries - 1)), default=0)
    return IndptrFacts(Fault.NONE, 0, 0, longest, array[-1])


def _page_table(
    indptr_at: int,
    batch: int,
    indices_at: int | None,
    num_indices: int,
    last_page_len_at: int,
    page_size: int,
    kv_len_at: int,
) -> PageFacts:
    array, last = _view(indptr_at, batch + 1), _view(last_page_len_at, batch)
    kv_len = _view(kv_len_at, batch)
    fault, at, value = _indptr_fault(array, None)
    if fault is Fault.NONE and array[batch] > num_indices:
        fault, at, value = Fault.INDICES_SHORT, batch, array[batch]
    if fault is not Fault.NONE:
        return PageFacts(fault, at, value, -1, 0, 0)
    for i in range(batch):
        pages = array[i + 1] - array[i]
        if pages and not 1 <= last[i] <= page_size:
            return PageFacts(Fault.LAST_PAGE_LEN, i, last[i], -1, 0, 0)
        tokens = (pages - 1) * page_size + last[i] if pages else 0
        if tokens > INT32_MAX:
            return PageFacts(Fault.KV_LEN_OVERFLOW, i, tokens, -1, 0, 0)
        kv_len[i] = tokens
    max_page = -1
    if indices_at:
        indices = _view(indices_at, num_indices)
        for at in range(array[0], array[batch]):
            if indices[at] < 0:
                return PageFacts(Fault.NEGATIVE_PAGE, at, indices[at], -1, 0, 0)
        max_page = max(indices[array[0] : array[batch]], default=-1)
    max_pages = max((array[i + 1] - array[i] for i in range(batch)), default=0)
    return PageFacts(Fault.NONE, 0, 0, max_page, max(kv_len, default=0), max_pages)

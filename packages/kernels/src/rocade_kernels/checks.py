"""Checks of plan arrays on the host, by address: one native call a plan, or a pure-Python twin.

Addresses are `tensor.data_ptr()` of contiguous int32 host arrays that the caller keeps alive. Nothing is
raised here: the caller knows the argument's name and words the error from `fault`, `at` and `value`.
"""

from __future__ import annotations

import ctypes
import enum
import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rocade_kernels import _abi, _native

INT32_MAX = 2**31 - 1
Ints = ctypes.Array[ctypes.c_int32]


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
    ROWS_FIRST = 9  # FIRST of a qo_indptr; the ones above are of a kv_indptr where a level is checked
    ROWS_DECREASE = 10  # DECREASES of a qo_indptr
    ROWS_DIFFER = 16  # the next level has `value` rows
    NOT_NESTED = 17  # qo_indptr[at] (value) is no boundary of the next level
    TOO_MANY_KEYS = 18  # the longest requests of all levels have `value` keys together


class IndptrFacts(NamedTuple):
    """What one pass over an indptr found. `longest` and `last` are 0 when a fault was found."""

    fault: Fault
    at: int
    value: int
    longest: int  # max of indptr[i + 1] - indptr[i], 0 for no requests
    last: int  # indptr[-1]


class Arrays(NamedTuple):
    """One level's plan arrays by address. The copy of each, and `kv_len`, lie in this order in the copies."""

    qo_indptr: int  # [batch + 1]; 0 for a level without one, which is then the only level
    kv_indptr: int  # [batch + 1], pages, or rows of dense K and V
    last_page_len: int  # [batch]; 0 for dense K and V
    indices: int  # page ids; 0: on a device, or not to be read
    num_indices: int
    batch: int
    page_size: int  # 0 for dense K and V

    @property
    def copied(self) -> int:
        """Entries of this level's copies, `kv_len [batch]` included."""
        return (2 if self.qo_indptr else 1) * (self.batch + 1) + (2 if self.page_size else 1) * self.batch


class LevelFacts(NamedTuple):
    """What the checks found in one level."""

    rows: int  # qo_indptr[-1], 0 without a qo_indptr
    longest: int  # rows of the longest request
    max_page: int  # largest page id in kv_indptr[0]:kv_indptr[-1]; -1 for none, or when they were not read
    max_kv_len: int  # keys of the longest request


class LevelsFacts(NamedTuple):
    """What the checks of all levels found; `levels` counts only when there is no fault."""

    fault: Fault
    at: int
    value: int
    level: int
    levels: list[LevelFacts]


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


def levels(given: Sequence[Arrays], copies: int) -> LevelsFacts:
    """Copy the arrays of all levels to the address `copies`, compute `kv_len`, and check the copies.

    `copies` has room for the sum of `Arrays.copied` int32.
    """
    lib = _native.library_or_none()
    if lib is None:
        return _levels(given, copies)
    count = len(given)
    facts = _facts(count)()
    pack = _abi.LEVEL_ARRAYS.pack
    packed = pack(*given[0]) if count == 1 else b"".join([pack(*one) for one in given])
    fault = lib.rk_check_levels(packed, count, copies, facts)
    at, value, level, *found = facts
    per_level = [LevelFacts._make(found[i : i + 4]) for i in range(0, 4 * count, 4)]
    return LevelsFacts(Fault(fault) if fault else Fault.NONE, at, value, level, per_level)


@functools.cache
def _facts(count: int) -> type[ctypes.Array[ctypes.c_int64]]:
    """What the native check of `count` levels writes: fault, value and level, then four numbers a level."""
    return ctypes.c_int64 * (3 + 4 * count)


def _view(address: int, count: int) -> Ints:
    return (ctypes.c_int32 * count).from_address(address) if count else (ctypes.c_int32 * 0)()


def _indptr_fault(array: Ints, first: int | None) -> tuple[Fault, int, int]:
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


_Fault = tuple[Fault, int, int]
_NONE: _Fault = (Fault.NONE, 0, 0)


def _levels(given: Sequence[Arrays], copies: int) -> LevelsFacts:
    """The twin of `rk_check_levels`."""
    found: list[LevelFacts] = []
    rows: list[Ints] = []
    for index, one in enumerate(given):
        qo, fault, facts = _level(one, copies)
        if fault[0] is not Fault.NONE:
            return LevelsFacts(*fault, index, [])
        copies += 4 * one.copied
        found.append(facts)
        rows.append(qo)
    for index, (outer, inner) in enumerate(pairwise(rows)):
        fault = _nesting(outer, inner)
        if fault[0] is not Fault.NONE:
            return LevelsFacts(*fault, index, [])
    keys = sum(facts.max_kv_len for facts in found)
    if keys > INT32_MAX:
        return LevelsFacts(Fault.TOO_MANY_KEYS, 0, keys, len(given) - 1, [])
    return LevelsFacts(*_NONE, len(given) - 1, found)


def _nesting(outer: Ints, inner: Ints) -> _Fault:
    """Whether the boundaries of a level are boundaries of the next one, and both cover the same rows."""
    if outer[-1] != inner[-1]:
        return Fault.ROWS_DIFFER, len(outer) - 1, inner[-1]
    ends = set(inner)
    missing = (i for i, end in enumerate(outer) if end not in ends)
    at = next(missing, None)
    return _NONE if at is None else (Fault.NOT_NESTED, at, outer[at])


def _level(one: Arrays, copies: int) -> tuple[Ints, _Fault, LevelFacts]:
    """Copies and checks of one level: its qo_indptr, the first fault, and the facts if there is none."""
    count, begin = one.batch, copies

    def copy(address: int, entries: int) -> Ints:
        nonlocal begin
        to = _view(begin, entries)
        if address and entries:
            ctypes.memmove(begin, address, 4 * entries)
        begin += 4 * entries
        return to

    qo = copy(one.qo_indptr, count + 1 if one.qo_indptr else 0)
    table = copy(one.kv_indptr, count + 1)
    last = copy(one.last_page_len, count if one.page_size else 0)
    kv_len = copy(0, count)
    nothing = LevelFacts(0, 0, -1, 0)
    if one.qo_indptr:
        fault, at, value = _indptr_fault(qo, 0)
        if fault is not Fault.NONE:
            return qo, (Fault(8 + fault), at, value), nothing
    found = _table_fault(one, table, last, kv_len)
    if found[0] is not Fault.NONE:
        return qo, found, nothing
    pages = _view(one.indices, one.num_indices)[table[0] : table[count]] if one.indices else ()
    longest = max((qo[i + 1] - qo[i] for i in range(count)), default=0) if one.qo_indptr else 0
    facts = LevelFacts(
        qo[count] if one.qo_indptr else 0, longest, max(pages, default=-1), max(kv_len, default=0)
    )
    return qo, _NONE, facts


def _table_fault(one: Arrays, table: Ints, last: Ints, kv_len: Ints) -> _Fault:
    """The first fault of a page table, or of a dense kv_indptr; fills `kv_len`."""
    found = _indptr_fault(table, None)
    if found[0] is not Fault.NONE:
        return found
    if one.page_size == 0:
        kv_len[:] = [table[i + 1] - table[i] for i in range(one.batch)]
        return _NONE
    if table[one.batch] > one.num_indices:
        return Fault.INDICES_SHORT, one.batch, table[one.batch]
    for i in range(one.batch):
        pages = table[i + 1] - table[i]
        if pages and not 1 <= last[i] <= one.page_size:
            return Fault.LAST_PAGE_LEN, i, last[i]
        tokens = (pages - 1) * one.page_size + last[i] if pages else 0
        if tokens > INT32_MAX:
            return Fault.KV_LEN_OVERFLOW, i, tokens
        kv_len[i] = tokens
    if one.indices:
        indices = _view(one.indices, one.num_indices)
        for at in range(table[0], table[one.batch]):
            if indices[at] < 0:
                return Fault.NEGATIVE_PAGE, at, indices[at]
    return _NONE

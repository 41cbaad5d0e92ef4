"""Validation of plan arrays: a malformed one raises ValueError with its name, its value and what is expected.

Host arrays are copied (a caller may reuse its buffers after plan) and checked by one native call. Arrays on
a device are copied to the host where planning needs their values; page ids stay there unchecked unless
`ROCADE_VALIDATE` is on, since kernels read nothing outside the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

import torch

from rocade import _settings
from rocade._errors import invalid
from rocade._problem import Level, PageTable, Span
from rocade._upload import upload
from rocade_kernels import checks
from rocade_kernels.checks import Fault

LevelFacts = checks.LevelFacts
INT32_MAX = 2**31 - 1
CPU = torch.device("cpu")
_CONTIGUOUS = (1,)


class Rows(NamedTuple):
    """A checked `qo_indptr` or `kv_indptr` on the host."""

    indptr: torch.Tensor  # int32 [B + 1]
    batch: int  # B
    total: int  # the last entry
    longest: int  # rows of the longest request


class Pages(NamedTuple):
    """A checked page table and the lengths that follow from it."""

    table: PageTable
    kv_len: torch.Tensor  # int32 [B], host
    max_kv_len: int


class PageNames(NamedTuple):
    """What the caller calls the arrays of one level; messages use these."""

    indptr: str = "paged_kv_indptr"
    indices: str = "paged_kv_indices"
    last_page_len: str = "paged_kv_last_page_len"
    qo_indptr: str = "qo_indptr"


PAGED_KV = PageNames()


class Given(NamedTuple):
    """The plan arrays of one level as the caller gave them; page table, or rows of dense K and V."""

    qo_indptr: torch.Tensor | None
    kv_indptr: torch.Tensor
    indices: torch.Tensor | None = None
    last_page_len: torch.Tensor | None = None


def rows(name: str, indptr: torch.Tensor, *, first: int | None = 0) -> Rows:
    """Check an indptr `[B + 1]`; `first=None` lets it start above 0."""
    host = host_int32(name, indptr)
    entries = host.numel()
    if entries == 0:
        raise invalid(name, "no entries", "batch size + 1 of them")
    facts = checks.indptr(host.data_ptr(), entries, first=first)
    if facts.fault is not Fault.NONE:
        _raise_indptr(name, facts.fault, facts.at, facts.value, first)
    return Rows(host, entries - 1, facts.last, facts.longest)


def pages(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    last_page_len: torch.Tensor,
    page_size: int,
    device: torch.device,
    *,
    names: PageNames = PAGED_KV,
) -> Pages:
    """Check a page table without query rows; `device` is where the cache lives."""
    if page_size < 1:
        raise invalid("page_size", page_size, "at least 1")
    level, facts = one_level(Given(None, indptr, indices, last_page_len), page_size, device, names)
    assert level.pages is not None  # as given
    return Pages(level.pages, level.kv_len, facts.max_kv_len)


def one_level(
    given: Given, page_size: int, device: torch.device, names: PageNames = PAGED_KV
) -> tuple[Level, LevelFacts]:
    """Check the plan arrays of a call that has one level; without a qo_indptr, the level's is empty."""
    found, facts = levels((given,), page_size, device, lambda _: names)
    return found[0], facts[0]


def levels(
    given: Sequence[Given], page_size: int, device: torch.device, names: Callable[[int], PageNames]
) -> tuple[tuple[Level, ...], list[LevelFacts]]:
    """Check the plan arrays of all levels, and that they nest; `page_size` 0 means dense K and V.

    `names` says, for an error's text only, what the caller calls the arrays of a level.
    """
    hosts = [
        _paged(one, page_size, device, names, index) if page_size else _dense(one, names, index)
        for index, one in enumerate(given)
    ]
    arrays = [host.arrays for host in hosts]
    entries = 0
    for one in arrays:
        entries += one.copied
    memory = torch.empty(entries, dtype=torch.int32, device=CPU)
    address = memory.data_ptr()
    found = checks.levels(arrays, address)
    if found.fault is not Fault.NONE:
        _raise_levels(names(found.level), found, hosts[found.level])
    made, begin = [], 0
    for host, facts in zip(hosts, found.levels, strict=True):
        made.append(_level(host, facts.max_page, memory, begin, address))
        begin += host.arrays.copied
    return tuple(made), found.levels


class _Host(NamedTuple):
    """One level's arrays as native code reads them, and what keeps their addresses valid."""

    arrays: checks.Arrays
    ids: torch.Tensor | None  # page ids, on the cache's device
    kept: tuple[torch.Tensor | None, ...]


def _dense(given: Given, names: Callable[[int], PageNames], index: int) -> _Host:
    qo, starts = given.qo_indptr, given.kv_indptr
    if not (qo is None or _is_plain(qo)):
        qo = host_int32(names(index).qo_indptr, qo)
    starts = starts if _is_plain(starts) else host_int32(names(index).indptr, starts)
    batch = starts.numel() - 1
    if batch < 0:
        raise invalid(names(index).indptr, "no entries", "batch size + 1 of them")
    if qo is not None and qo.numel() != batch + 1:
        _raise_count(names(index).indptr, names(index).qo_indptr, batch, qo.numel())
    arrays = checks.Arrays(0 if qo is None else qo.data_ptr(), starts.data_ptr(), 0, 0, 0, batch, 0)
    return _Host(arrays, None, (qo, starts))


def _paged(
    given: Given, page_size: int, device: torch.device, names: Callable[[int], PageNames], index: int
) -> _Host:
    qo, starts, ids, last = given
    if not (qo is None or _is_plain(qo)):
        qo = host_int32(names(index).qo_indptr, qo)
    starts = starts if _is_plain(starts) else host_int32(names(index).indptr, starts)
    if last is None or not _is_plain(last):
        last = host_int32(names(index).last_page_len, last)
    batch = last.numel()
    if starts.numel() != batch + 1:
        said = names(index)
        expected = f"{batch + 1}, one more than {said.last_page_len}"
        raise invalid(said.indptr, f"{starts.numel()} entries", expected)
    if qo is not None and qo.numel() != batch + 1:
        _raise_count(names(index).last_page_len, names(index).qo_indptr, batch, qo.numel())
    readable: torch.Tensor | None = ids
    if ids is None or not _is_plain(ids) or device.type != "cpu":
        ids = page_ids(names(index).indices, ids, device)
        readable = _readable(ids)
    arrays = checks.Arrays(
        0 if qo is None else qo.data_ptr(),
        starts.data_ptr(),
        last.data_ptr(),
        0 if readable is None else readable.data_ptr(),
        ids.numel(),
        batch,
        page_size,
    )
    return _Host(arrays, ids, (qo, starts, last, readable))


def _level(host: _Host, max_page: int, memory: torch.Tensor, begin: int, address: int) -> Level:
    """A level whose arrays are the checked copies, which start at element `begin` of `memory`."""
    arrays, ids, _ = host
    batch = arrays.batch
    at = address + 4 * begin
    rows = begin + (batch + 1 if arrays.qo_indptr else 0)
    starts = rows + batch + 1
    qo = Span(memory, begin, rows, at)
    indptr = Span(memory, rows, starts, at + 4 * (rows - begin))
    if ids is None:
        kv_len = Span(memory, starts, starts + batch, at + 4 * (starts - begin))
        return Level(qo, kv_len, None, indptr.tensor())
    ends = starts + batch
    last = Span(memory, starts, ends, at + 4 * (starts - begin))
    table = PageTable(indptr, ids, last, arrays.page_size, max_page)
    return Level(qo, Span(memory, ends, ends + batch, at + 4 * (ends - begin)), table)


def _is_plain(array: object) -> bool:
    """Whether native code can read an array where it is; the strides of one tell 1-D and contiguous."""
    return (
        isinstance(array, torch.Tensor)
        and array.dtype is torch.int32
        and array.is_cpu
        and array.stride() == _CONTIGUOUS
    )


def page_ids(name: str, given: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Page ids as contiguous int32 on `device`. The caller's own tensor where it already is that."""
    indices = _checked(name, given)
    if indices.dtype is torch.int64:
        indices = _narrow(name, indices) if indices.is_cpu else _narrow_device(indices)
    return upload(indices.contiguous(), device)


def host_int32(name: str, given: torch.Tensor | None) -> torch.Tensor:
    """A private, contiguous int32 copy on the host of a 1-D int32 or int64 tensor."""
    array = _checked(name, given)
    if array.dtype is torch.int32 and array.is_cpu:
        return array.clone(memory_format=torch.contiguous_format)
    host = array.cpu()
    return _narrow(name, host) if host.dtype is torch.int64 else host.contiguous()


def lengths_match(name: str, given: object, expected: torch.Tensor) -> None:
    """Check lengths that repeat what the plan arrays say; on a device, only under `ROCADE_VALIDATE`."""
    if not isinstance(given, torch.Tensor) or given.numel() != expected.numel():
        size = given.numel() if isinstance(given, torch.Tensor) else type(given).__name__
        raise invalid(name, size, f"a tensor of {expected.numel()} lengths")
    if not is_readable(given):
        return
    wrong = given.reshape(-1).cpu().to(torch.int64) != expected
    if bool(wrong.any()):
        at = int(wrong.int().argmax())
        raise invalid(
            f"{name}[{at}]", int(given.reshape(-1)[at]), f"{int(expected[at])}, as the plan arrays say"
        )


def at_least(name: str, bound: int | None, actual: int) -> None:
    """Check an upper bound that the caller gave for something the plan arrays say."""
    if bound is not None and int(bound) < actual:
        raise invalid(name, int(bound), f"at least {actual}, the longest in the plan arrays")


def _checked(name: str, array: object) -> torch.Tensor:
    """The array, after ValueError for what is no 1-D tensor of integers."""
    if not isinstance(array, torch.Tensor):
        raise invalid(name, type(array).__name__, "a 1-D int32 tensor")
    if array.dim() != 1:
        raise invalid(name, f"shape {list(array.shape)}", "a 1-D tensor")
    if array.dtype is not torch.int32 and array.dtype is not torch.int64:
        raise invalid(name, array.dtype, "int32 (int64 is converted)")
    return array


def _narrow(name: str, host: torch.Tensor) -> torch.Tensor:
    """int64 on the host to int32; a value that does not fit is an error, not a wrap."""
    if host.numel():
        low, high = (int(x) for x in host.aminmax())
        if low < -INT32_MAX - 1 or high > INT32_MAX:
            raise invalid(name, low if low < -INT32_MAX - 1 else high, "values that int32 holds")
    return host.to(torch.int32).contiguous()


def _narrow_device(indices: torch.Tensor) -> torch.Tensor:
    """int64 page ids on a device to int32, unread: what is too large becomes an id outside every pool."""
    return indices.clamp(-1, INT32_MAX).to(torch.int32)


def is_readable(array: object) -> bool:
    """Whether the host may read an array to check it: on a device only under `ROCADE_VALIDATE`.

    What is no tensor may be looked at as well: the checks refuse it.
    """
    return not isinstance(array, torch.Tensor) or array.is_cpu or _settings.validate()


def _readable(ids: torch.Tensor) -> torch.Tensor | None:
    """Page ids that may be checked, on the host."""
    return ids.cpu() if is_readable(ids) else None


def _raise_indptr(name: str, fault: Fault, at: int, value: int, first: int | None) -> NoReturn:
    if fault is Fault.FIRST:
        raise invalid(f"{name}[0]", value, f"{first}" if first is not None else "0 or more")
    raise invalid(f"{name}[{at}]", value, f"at least {name}[{at - 1}]: an indptr never decreases")


def _raise_count(said: str, qo_name: str, batch: int, entries: int) -> NoReturn:
    if entries == 0:
        raise invalid(qo_name, "no entries", "batch size + 1 of them")
    raise invalid(said, f"{batch} requests", f"{entries - 1}, as many as {qo_name} has")


def _raise_levels(names: PageNames, found: checks.LevelsFacts, host: _Host) -> NoReturn:
    fault, at, value = found.fault, found.at, found.value
    if fault in (Fault.FIRST, Fault.DECREASES):
        _raise_indptr(names.indptr, fault, at, value, None)
    if fault is Fault.ROWS_FIRST:
        _raise_indptr(names.qo_indptr, Fault.FIRST, at, value, 0)
    if fault is Fault.ROWS_DECREASE:
        _raise_indptr(names.qo_indptr, Fault.DECREASES, at, value, 0)
    if fault is Fault.ROWS_DIFFER:
        rows = host.kept[0]
        assert rows is not None  # cascade levels have query rows
        raise invalid(names.qo_indptr, f"{int(rows[-1])} rows", f"{value}, as the next level")
    if fault is Fault.NOT_NESTED:
        raise invalid(f"{names.qo_indptr}[{at}]", value, "a boundary of the next level's requests too")
    if fault is Fault.TOO_MANY_KEYS:
        raise invalid(
            names.indptr, f"up to {value} keys a row over all levels", f"at most {INT32_MAX} of all levels"
        )
    _raise_table(names, found, host.arrays)


def _raise_table(names: PageNames, found: checks.LevelsFacts, arrays: checks.Arrays) -> NoReturn:
    fault, at, value = found.fault, found.at, found.value
    if fault is Fault.INDICES_SHORT:
        given = f"{arrays.num_indices} page indices"
        raise invalid(names.indices, given, f"at least {value}, {names.indptr}[-1]")
    if fault is Fault.LAST_PAGE_LEN:
        raise invalid(f"{names.last_page_len}[{at}]", value, f"1 to page_size ({arrays.page_size})")
    if fault is Fault.NEGATIVE_PAGE:
        raise invalid(f"{names.indices}[{at}]", value, "a page index of 0 or more")
    raise invalid(names.indptr, f"request {at} of {value} tokens", f"at most {INT32_MAX} tokens a request")

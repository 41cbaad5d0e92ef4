"""Validation of plan arrays: a malformed one raises ValueError with its name, its value and what is expected.

Host arrays are copied (a caller may reuse its buffers after plan) and read once each, by native code. Arrays
on a device are copied to the host where planning needs their values; page ids stay there unchecked unless
`ROCADE_VALIDATE` is on, since kernels skip a page outside the pool.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import torch

from rocade import _settings
from rocade._errors import invalid
from rocade._problem import Level, PageTable
from rocade_kernels import checks
from rocade_kernels.checks import Fault

INT32_MAX = 2**31 - 1
CPU = torch.device("cpu")


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
    """What the caller calls the three arrays of a page table; messages use these."""

    indptr: str = "paged_kv_indptr"
    indices: str = "paged_kv_indices"
    last_page_len: str = "paged_kv_last_page_len"


PAGED_KV = PageNames()


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
    batch: int | None = None,
    names: PageNames = PAGED_KV,
) -> Pages:
    """Check a page table; `batch` is the number of requests expected, `device` where the cache lives."""
    if page_size < 1:
        raise invalid("page_size", page_size, "at least 1")
    starts, last = host_int32(names.indptr, indptr), host_int32(names.last_page_len, last_page_len)
    count = last.numel()
    if starts.numel() != count + 1:
        raise invalid(
            names.indptr, f"{starts.numel()} entries", f"{count + 1}, one more than {names.last_page_len}"
        )
    if batch is not None and count != batch:
        raise invalid(names.last_page_len, f"{count} requests", f"{batch}, as many as qo_indptr has")
    ids = page_ids(names.indices, indices, device)
    readable = _readable(ids)
    kv_len = torch.empty_like(last)
    facts = checks.page_table(
        indptr=starts.data_ptr(),
        batch=count,
        indices=None if readable is None else readable.data_ptr(),
        num_indices=ids.numel(),
        last_page_len=last.data_ptr(),
        page_size=page_size,
        kv_len=kv_len.data_ptr(),
    )
    if facts.fault is not Fault.NONE:
        _raise_pages(names, facts, page_size, ids.numel())
    table = PageTable(starts, ids, last, page_size, facts.max_page)
    return Pages(table, kv_len, facts.max_kv_len)


def page_ids(name: str, indices: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Page ids as contiguous int32 on `device`. The caller's own tensor where it already is that."""
    _check_array(name, indices)
    if indices.dtype is torch.int64:
        indices = _narrow(name, indices) if indices.is_cpu else _narrow_device(indices)
    if indices.device != device:
        indices = indices.to(device)
    return indices.contiguous()


def host_int32(name: str, array: torch.Tensor) -> torch.Tensor:
    """A private, contiguous int32 copy on the host of a 1-D int32 or int64 tensor."""
    _check_array(name, array)
    if array.dtype is torch.int32 and array.is_cpu:
        return array.clone(memory_format=torch.contiguous_format)
    host = array.cpu()
    return _narrow(name, host) if host.dtype is torch.int64 else host.contiguous()


def nested(levels: tuple[Level, ...], names: tuple[str, ...]) -> None:
    """Check that a level's boundaries are boundaries of the next level too, and that all cover the same rows.

    Only then does every query row have one chain of levels, and the levels read as one sequence.
    """
    for outer, inner, name in zip(levels, levels[1:], names, strict=False):
        if int(outer.qo_indptr[-1]) != int(inner.qo_indptr[-1]):
            raise invalid(
                name, f"{int(outer.qo_indptr[-1])} rows", f"{int(inner.qo_indptr[-1])}, as the next level"
            )
        if outer.qo_indptr.numel() == 2:  # 0 and the number of rows, which the next level has as well
            continue
        found = inner.qo_indptr[torch.searchsorted(inner.qo_indptr, outer.qo_indptr)] == outer.qo_indptr
        if not bool(found.all()):
            at = int(found.int().argmin())
            raise invalid(
                f"{name}[{at}]", int(outer.qo_indptr[at]), "a boundary of the next level's requests too"
            )


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


def _check_array(name: str, array: object) -> None:
    if not isinstance(array, torch.Tensor):
        raise invalid(name, type(array).__name__, "a 1-D int32 tensor")
    if array.dim() != 1:
        raise invalid(name, f"shape {list(array.shape)}", "a 1-D tensor")
    if array.dtype is not torch.int32 and array.dtype is not torch.int64:
        raise invalid(name, array.dtype, "int32 (int64 is converted)")


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


def _raise_pages(names: PageNames, facts: checks.PageFacts, page_size: int, num_indices: int) -> NoReturn:
    at, value = facts.at, facts.value
    if facts.fault in (Fault.FIRST, Fault.DECREASES):
        _raise_indptr(names.indptr, facts.fault, at, value, None)
    if facts.fault is Fault.INDICES_SHORT:
        raise invalid(names.indices, f"{num_indices} page indices", f"at least {value}, {names.indptr}[-1]")
    if facts.fault is Fault.LAST_PAGE_LEN:
        raise invalid(f"{names.last_page_len}[{at}]", value, f"1 to page_size ({page_size})")
    if facts.fault is Fault.NEGATIVE_PAGE:
        raise invalid(f"{names.indices}[{at}]", value, "a page index of 0 or more")
    raise invalid(names.indptr, f"request {at} of {value} tokens", f"at most {INT32_MAX} tokens a request")

"""Finds the prefixes that a batch's page tables share, and lays them out as the levels of a cascade."""

from __future__ import annotations

from typing import NamedTuple

import torch

from rocade import _checks, _prefix_tree
from rocade._errors import invalid
from rocade._problem import PageTable
from rocade._upload import upload

__all__ = ["CascadeLevels", "find_shared_prefixes"]


class CascadeLevels(NamedTuple):
    """The first four arguments of `MultiLevelCascadeAttentionWrapper.plan`, one entry a level.

    Level 0 holds the most widely shared pages, the last level what each request has for itself. Unpack it:
    `MultiLevelCascadeAttentionWrapper(levels.num_levels, ...).plan(*levels, num_qo_heads, ...)`.
    """

    qo_indptr_arr: list[torch.Tensor]  # int32 [B_l + 1], host
    paged_kv_indptr_arr: list[torch.Tensor]  # int32 [B_l + 1], host
    paged_kv_indices_arr: list[torch.Tensor]  # int32, on the device of the given indices
    paged_kv_last_page_len: list[torch.Tensor]  # int32 [B_l], host; 0 for a request without pages

    @property
    def num_levels(self) -> int:
        """How many levels there are, at least one."""
        return len(self.qo_indptr_arr)


def find_shared_prefixes(
    paged_kv_indptr: torch.Tensor,
    paged_kv_indices: torch.Tensor,
    paged_kv_last_page_len: torch.Tensor,
    page_size: int,
    qo_indptr: torch.Tensor | None = None,
    *,
    min_shared_pages: int = 1,
    max_levels: int | None = None,
    pad_levels: bool = False,
) -> CascadeLevels:
    """Split a batch's page tables into levels, so that pages at the head of several requests are read once.

    Two requests share a page when the page and all pages before it are the same in both and full. Requests
    keep their order, so only neighbours share: sort a batch by its page tables (a radix tree's order) to
    share most. Prefixes form a tree of any depth. Attention over the levels equals attention over the given
    tables. Runs on the host; arrays on a device are copied there, which waits for the device.

    Args:
        paged_kv_indptr: int32 `[B + 1]`, first page of each request; may start above 0.
        paged_kv_indices: int32 `[>= paged_kv_indptr[-1]]`, page ids.
        paged_kv_last_page_len: int32 `[B]`, keys in each request's last page, `1..page_size`.
        page_size: keys a page.
        qo_indptr: int32 `[B + 1]`, first query row of each request; None means one row each (decode).
        min_shared_pages: pages that a shared prefix must add to the one it extends; shorter ones stay
            unshared.
        max_levels: at most this many levels, the last one included; the prefixes that save most page reads
            stay. None means as many as there are.
        pad_levels: add empty levels until there are `max_levels`, for a wrapper that was built for that many.

    Returns:
        One level when nothing is shared, else two or more.

    Raises:
        ValueError: an array has the wrong shape, dtype or values, or a number is out of range.
    """
    _check_numbers(min_shared_pages, max_levels, pad_levels)
    host = _checks.pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, _checks.CPU)
    batch = host.kv_len.numel()
    qo = _query_rows(qo_indptr, batch)
    full_pages = torch.div(host.kv_len, page_size, rounding_mode="floor").tolist()
    first = host.table.indptr.tolist()
    nodes = _prefix_tree.build(
        _prefix_tree.common_pages(host.table.indices.data_ptr(), first[:-1], full_pages)
    )
    num_shared = _prefix_tree.choose(nodes, min_shared_pages, None if max_levels is None else max_levels - 1)
    levels = CascadeLevels([], [], [], [])
    device = paged_kv_indices.device
    num_empty = max_levels - 1 - num_shared if pad_levels and max_levels else 0
    for level in range(num_shared + num_empty):
        _add_shared(levels, [node for node in nodes if node.level == level], host.table, qo, device)
    _add_rest(levels, nodes, host.table, qo, device)
    return levels


def _check_numbers(min_shared_pages: int, max_levels: int | None, pad_levels: bool) -> None:
    """Raise ValueError for bounds that mean nothing."""
    if min_shared_pages < 1:
        raise invalid("min_shared_pages", min_shared_pages, "at least 1")
    if max_levels is not None and max_levels < 1:
        raise invalid("max_levels", max_levels, "at least 1, or None")
    if pad_levels and max_levels is None:
        raise invalid("max_levels", max_levels, "a number of levels to pad to with pad_levels=True")


def _query_rows(qo_indptr: torch.Tensor | None, batch: int) -> torch.Tensor:
    """Checked host indptr of the query rows; one row a request by default."""
    if qo_indptr is None:
        return torch.arange(batch + 1, dtype=torch.int32, device="cpu")
    rows = _checks.rows("qo_indptr", qo_indptr)
    if rows.batch != batch:
        raise invalid("qo_indptr", f"{rows.batch} requests", f"{batch}, as many as paged_kv_indptr has")
    return rows.indptr


def _add_shared(
    levels: CascadeLevels,
    nodes: list[_prefix_tree.Node],
    table: PageTable,
    qo: torch.Tensor,
    device: torch.device,
) -> None:
    """Append a level of one request a node; a row's request outside all nodes stands alone, without pages."""
    end = qo.numel() - 1
    bounds = [0]
    skip: list[int] = []
    take: list[int] = []
    nothing = _prefix_tree.Node(end, end, 0, shared_from=0)  # stands behind the last request
    for node in (*sorted(nodes, key=lambda node: node.begin), nothing):
        alone = [0] * (node.begin - bounds[-1])
        bounds += range(bounds[-1] + 1, node.begin + 1)
        skip += alone
        take += alone
        if node is not nothing:
            bounds.append(node.end)
            skip.append(node.shared_from)
            take.append(node.pages - node.shared_from)
    rows = torch.tensor(bounds, device="cpu")
    counts = torch.tensor(take, device="cpu")
    begin = table.indptr[rows[:-1]] + torch.tensor(skip, device="cpu")
    last = torch.where(counts > 0, table.page_size, 0)
    _append(levels, qo[rows], begin, counts, last, table.indices, device)


def _add_rest(
    levels: CascadeLevels,
    nodes: list[_prefix_tree.Node],
    table: PageTable,
    qo: torch.Tensor,
    device: torch.device,
) -> None:
    """Append the last level: each request without the pages that its deepest kept node covers."""
    covered = [0] * (qo.numel() - 1)
    for node in nodes:  # outer ones first
        if node.kept:
            covered[node.begin : node.end] = [node.pages] * (node.end - node.begin)
    shared = torch.tensor(covered, dtype=torch.int64, device="cpu")
    counts = table.indptr.diff() - shared
    last = torch.where(counts > 0, table.last_page_len, 0)
    _append(levels, qo, table.indptr[:-1] + shared, counts, last, table.indices, device)


def _append(
    levels: CascadeLevels,
    qo_indptr: torch.Tensor,
    begin: torch.Tensor,
    counts: torch.Tensor,
    last_page_len: torch.Tensor,
    indices: torch.Tensor,
    device: torch.device,
) -> None:
    """Append a level whose request i reads `counts[i]` page ids from `begin[i]` on."""
    kv_indptr = torch.zeros(counts.numel() + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(counts, 0, out=kv_indptr[1:])
    source = torch.repeat_interleave(begin - kv_indptr[:-1], counts)
    source += torch.arange(source.numel(), device="cpu")
    levels.qo_indptr_arr.append(qo_indptr)
    levels.paged_kv_indptr_arr.append(kv_indptr.to(torch.int32))
    levels.paged_kv_indices_arr.append(upload(indices[source], device))
    levels.paged_kv_last_page_len.append(last_page_len.to(torch.int32))

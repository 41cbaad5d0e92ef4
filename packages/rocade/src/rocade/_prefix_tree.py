"""The tree of page prefixes that neighbouring requests share, and which of its nodes become cascade levels.

Works on plain integers: a batch has about a thousand requests, and mostly one memory comparison each decides.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

_PAGE_ID_BYTES = 4  # int32


@dataclass(slots=True)
class Node:
    """Requests `begin..end - 1`, at least two, whose first `pages` pages are the same."""

    begin: int
    end: int
    pages: int
    parent: int = -1  # index in the list of nodes, -1 for a root
    depth: int = 0  # ancestors
    shared_from: int = -1  # pages that kept ancestors already cover; -1 while the node is not kept
    level: int = -1
    saved: list[list[int]] = field(default_factory=list)  # [depth of the last kept ancestor + 1][levels left]

    @property
    def kept(self) -> bool:
        """True when the node became a request of a level."""
        return self.shared_from >= 0


def common_pages(address: int, begin: Sequence[int], full: Sequence[int]) -> list[int]:
    """Leading pages that each request has in common with the next one, B - 1 numbers.

    Args:
        address: of the int32 page ids, readable up to every `begin[i] + full[i]`.
        begin: first page id of each request.
        full: how many leading pages of each request hold a whole page of keys.
    """
    size = max((b + n for b, n in zip(begin, full, strict=True)), default=0)
    ids = ctypes.string_at(address, size * _PAGE_ID_BYTES) if size else b""
    pages = memoryview(ids).cast("i")
    common: list[int] = []
    # Neighbours mostly share as much as the pair before them did, so that is tried first: page ids `head`.
    shared, head = 0, b""
    for a, b, n, m in zip(begin, begin[1:], full, full[1:], strict=False):
        limit = min(n, m)
        same = shared <= limit and ids.startswith(head, b * _PAGE_ID_BYTES)
        if not same or (shared < limit and pages[a + shared] == pages[b + shared]):
            shared = _match(ids, a, b, shared if same else 0, limit)
            head = ids[b * _PAGE_ID_BYTES : (b + shared) * _PAGE_ID_BYTES]
        common.append(shared)
    return common


def _match(ids: bytes, a: int, b: int, low: int, high: int) -> int:
    """Length of the common prefix of two runs of page ids, known to be in `low..high`, mostly near `low`."""
    step = 1
    while low < high:
        probe = min(low + step, high)
        if not _same(ids, a + low, b + low, probe - low):
            return _bisect(ids, a, b, low, probe - 1)
        low, step = probe, 2 * step
    return low


def _bisect(ids: bytes, a: int, b: int, low: int, high: int) -> int:
    """`_match` when the answer is known to be in `low..high`."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _same(ids, a + low, b + low, middle - low) else (low, middle - 1)
    return low


def _same(ids: bytes, a: int, b: int, count: int) -> bool:
    """True when `count` page ids from `a` and from `b` are the same."""
    a, b, count = a * _PAGE_ID_BYTES, b * _PAGE_ID_BYTES, count * _PAGE_ID_BYTES
    return ids[a : a + count] == ids[b : b + count]


def build(common: Sequence[int]) -> list[Node]:
    """All nodes with at least one page, parents before children, from the pages common to neighbours."""
    nodes: list[Node] = []
    open_nodes: list[tuple[int, int]] = []  # (pages, first request), pages growing towards the top
    for i, pages in enumerate([*common, 0]):
        begin = i
        while open_nodes and open_nodes[-1][0] > pages:
            shared, begin = open_nodes.pop()
            nodes.append(Node(begin, i + 1, shared))
        if pages and (not open_nodes or open_nodes[-1][0] < pages):
            open_nodes.append((pages, begin))
    nodes.reverse()
    _link(nodes)
    return nodes


def _link(nodes: list[Node]) -> None:
    """Fill in parents and depths; a node's interval lies inside its parent's, which stands before it."""
    path: list[int] = []
    for index, node in enumerate(nodes):
        while path and not nodes[path[-1]].begin <= node.begin < nodes[path[-1]].end:
            path.pop()
        node.parent, node.depth = (path[-1] if path else -1), len(path)
        path.append(index)


def choose(nodes: list[Node], min_pages: int, max_depth: int | None) -> int:
    """Keep the nodes that save most page reads with at most `max_depth` on a path; return the levels used.

    A node that is not kept leaves its pages to its children and requests. A kept one brings at least
    `min_pages`.
    """
    deepest = 1 + max((node.depth for node in nodes), default=-1)
    if max_depth is not None and max_depth < deepest:
        _count_savings(nodes, min_pages, max_depth)
    levels = 0
    state = [(0, 0, 0)] * len(
        nodes
    )  # for a node's children: pages covered, slot of that ancestor, levels used
    for index, node in enumerate(nodes):
        covered, slot, used = state[node.parent] if node.parent >= 0 else (0, 0, 0)
        wanted = node.pages - covered >= min_pages
        if node.saved:
            left = (max_depth or 0) - used
            wanted = wanted and left > 0 and _gain(node, covered, left) >= node.saved[slot][left]
        if wanted:
            node.shared_from, node.level = covered, used
            covered, slot, used = node.pages, node.depth + 1, used + 1
            levels = max(levels, used)
        state[index] = covered, slot, used
    return levels


def _gain(node: Node, covered: int, left: int) -> int:
    """Page reads saved in the subtree when `node` is kept below an ancestor that covers `covered` pages."""
    return (node.end - node.begin - 1) * (node.pages - covered) + node.saved[node.depth + 1][left - 1]


def _count_savings(nodes: list[Node], min_pages: int, max_depth: int) -> None:
    """Fill `saved` from the leaves up: the most page reads that a subtree can save.

    It depends on the last kept ancestor and on how many levels are left.
    Row `depth + 1` of a node, where the node itself is the ancestor, holds the sum over its children only.
    """
    covered = [0] * (2 + max(node.depth for node in nodes))
    for node in nodes:
        node.saved = [[0] * (max_depth + 1) for _ in range(node.depth + 2)]
    for node in reversed(nodes):
        at: Node | None = node
        while at is not None and at.parent >= 0:
            at = nodes[at.parent]
            covered[at.depth + 1] = at.pages
        for slot in range(node.depth + 1):
            for left in range(1, max_depth + 1):
                if node.pages - covered[slot] >= min_pages:
                    node.saved[slot][left] = max(node.saved[slot][left], _gain(node, covered[slot], left))
        if node.parent >= 0:
            _add(nodes[node.parent].saved, node.saved)


def _add(total: list[list[int]], part: list[list[int]]) -> None:
    """Add a child's table to its parent's, without the row in which the child itself is the ancestor."""
    for row, extra in zip(total, part[: len(total)], strict=True):
        for i, value in enumerate(extra):
            row[i] += value

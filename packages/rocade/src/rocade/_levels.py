"""From the plan arrays of several cascade levels to checked `Level`s, and their graph buffers.

Letters: L levels, B_l requests of level l, T query rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from rocade import _checks
from rocade._checks import Given, LevelFacts, PageNames
from rocade._errors import invalid
from rocade._problem import Level, Problem
from rocade._wrapper import graph_buffer, persist

Tensors = Sequence[torch.Tensor]

NAMES = ("qo_indptr_arr", "paged_kv_indptr_arr", "paged_kv_indices_arr", "paged_kv_last_page_len")
BUFFER_NAMES = (
    "qo_indptr_buf_arr",
    "paged_kv_indptr_buf_arr",
    "paged_kv_indices_buf_arr",
    "paged_kv_last_page_len_buf_arr",
)


def paged_levels(
    arrays: tuple[Tensors, Tensors, Tensors, Tensors], num_levels: int, page_size: int, device: torch.device
) -> tuple[tuple[Level, ...], LevelFacts, int]:
    """Checked levels from the first four arguments of a cascade's plan.

    Also what the checks found in the last level, and an upper bound on the keys that a row sees: the sum of
    each level's longest.
    """
    for name, array in zip(NAMES, arrays, strict=True):
        check_count(name, array, num_levels)
    given = [Given(*one) for one in zip(*arrays, strict=True)]
    levels, facts = _checks.levels(given, page_size, device, _names)
    return levels, facts[-1], sum([one.max_kv_len for one in facts])


def _names(level: int) -> PageNames:
    """What plan() calls the arrays of one level."""
    qo_indptr, indptr, indices, last_page_len = (f"{name}[{level}]" for name in NAMES)
    return PageNames(indptr, indices, last_page_len, qo_indptr)


def check_count(name: str, arrays: Tensors, num_levels: int) -> None:
    """Raise ValueError unless there is one array a level."""
    if not isinstance(arrays, (list, tuple)) or len(arrays) != num_levels:
        given = f"{len(arrays)} arrays" if isinstance(arrays, (list, tuple)) else type(arrays).__name__
        raise invalid(name, given, f"a list of {num_levels} tensors, one for each level")


class LevelBuffers:
    """The caller's plan buffers in graph mode, which a captured graph reads; B_l of each level is fixed."""

    def __init__(self, buffers: tuple[Tensors | None, ...], num_levels: int, device: torch.device) -> None:
        given = []
        for name, arrays in zip(BUFFER_NAMES, buffers, strict=True):
            if arrays is None:
                raise invalid(name, None, f"a list of {num_levels} tensors, since use_cuda_graph is on")
            check_count(name, arrays, num_levels)
            given.append(arrays)
        self._levels = [
            self._checked(index, tensors, device) for index, tensors in enumerate(zip(*given, strict=True))
        ]
        self._max_rows: int | None = None  # rows of the first plan, which a graph is captured for

    @staticmethod
    def _checked(
        index: int, tensors: tuple[torch.Tensor, ...], device: torch.device
    ) -> tuple[torch.Tensor, ...]:
        """The buffers of one level, after their dtype, device and sizes were compared."""
        names = [f"{name}[{index}]" for name in BUFFER_NAMES]
        batch = graph_buffer(names[3], tensors[3], device).numel()
        graph_buffer(names[0], tensors[0], device, batch + 1)
        graph_buffer(names[1], tensors[1], device, batch + 1)
        graph_buffer(names[2], tensors[2], device)
        return tensors

    def settle(self, problem: Problem) -> Problem:
        """The problem with its arrays copied into the buffers, and its page ids read from there."""
        if self._max_rows is None:
            self._max_rows = problem.num_rows
        if problem.num_rows > self._max_rows:
            raise invalid(NAMES[0], f"{problem.num_rows} rows", f"at most {self._max_rows}, as first planned")
        levels = tuple(self._settle(index, level) for index, level in enumerate(problem.levels))
        return dataclasses.replace(problem, levels=levels)

    def _settle(self, index: int, level: Level) -> Level:
        """One level in its buffers."""
        qo, indptr, indices, last_page_len = self._levels[index]
        table = level.pages
        assert table is not None  # every level of this wrapper is paged
        if level.num_requests != last_page_len.numel():
            expected = f"{last_page_len.numel()}, fixed by the graph buffers"
            raise invalid(f"{NAMES[0]}[{index}]", f"{level.num_requests} requests", expected)
        used = table.indices[: int(table.indptr[-1])]
        ids = persist(f"{NAMES[2]}[{index}]", indices, used)
        persist(f"{NAMES[0]}[{index}]", qo, level.qo_indptr)
        persist(f"{NAMES[1]}[{index}]", indptr, table.indptr)
        persist(f"{NAMES[3]}[{index}]", last_page_len, table.last_page_len)
        return level.with_pages(table.with_indices(ids))

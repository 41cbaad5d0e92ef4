"""The work list of one plan in device memory, and the workspace of its partial results.

In graph mode both stay where the first plan put them; other plans have memory of their own.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence

import torch

from arch_caps import MaskKind, Op, Request
from rocade._errors import invalid
from rocade._problem import GraphMemory, Level, Problem
from rocade.backends.hip._work import LAUNCH_NS, MERGE_THREADS, MergeShape, Work
from rocade_kernels import _abi
from rocade_kernels.cpu_plans import LevelArrays
from rocade_kernels.work_lists import GraphLimits, WorkArgs, WorkFacts, WorkPlanner

_MASK = {MaskKind.NONE: _abi.MASK_NONE, MaskKind.CAUSAL: _abi.MASK_CAUSAL, MaskKind.CUSTOM: _abi.MASK_CUSTOM}
_ANY = -1  # as many bytes of partial results as a plan likes
_ENTRY_BYTES = 4  # of a page id
_ONE_ENTRY: Sequence[int] = (0,)  # distances from the first table, of a list for one level


class _Local(threading.local):
    """A planner for each thread."""

    planner: WorkPlanner | None = None


_LOCAL = _Local()


class WorkList:
    """Where a list is, and the memory for its partial results."""

    __slots__ = ("_workspace", "device", "facts", "memory")

    def __init__(
        self, facts: WorkFacts, memory: torch.Tensor, workspace: torch.Tensor | None, device: torch.device
    ) -> None:
        self.facts = facts
        self.memory = memory
        self.device = device
        self._workspace = workspace

    @property
    def has_workspace(self) -> bool:
        """Whether the caller gave one, which then is the same in every run."""
        return self._workspace is not None

    def workspace(self) -> torch.Tensor:
        """The caller's workspace; without one, new memory for one run."""
        if self._workspace is not None:
            return self._workspace
        return torch.empty(self.facts.float_bytes, dtype=torch.uint8, device=self.device)


def make_list(request: Request, problem: Problem, work: Work, only_level: int) -> WorkList:
    """Plan, check the workspace, write the list, and send it to the device without waiting for it."""
    planner = _LOCAL.planner
    if planner is None:
        planner = _LOCAL.planner = WorkPlanner()
    limits = None if problem.graph is None else _limits(request, problem.graph)
    levels = problem.levels
    entries = _ONE_ENTRY if len(levels) == 1 else _first_entries(problem, only_level)
    facts = planner.plan(
        [_arrays(level) for level in levels], entries, _args(request, problem, work, only_level), limits
    )
    workspace, need = problem.workspace, facts.float_bytes
    if workspace is not None and workspace.numel() < need:
        expected = f"at least {need} bytes for this plan, even with nothing cut that need not be"
        raise invalid("float_workspace_buffer", f"{workspace.numel()} bytes", expected)
    home = _home(request, problem, facts, only_level)
    return WorkList(facts, _write(planner, facts, home), workspace, problem.device)


def _home(request: Request, problem: Problem, facts: WorkFacts, only_level: int) -> torch.Tensor:
    """Memory for the list: in graph mode, that of the plans with the same flags before it."""
    device = problem.device
    if problem.graph is None:
        return torch.empty(facts.capacity, dtype=torch.uint8, device=device)
    kept = problem.graph.kept
    key = (dataclasses.replace(request, max_qo_len=None, max_kv_len=None), only_level)
    memory = kept.get(key)
    if memory is None or memory.numel() < facts.capacity:
        memory = kept[key] = torch.empty(facts.capacity, dtype=torch.uint8, device=device)
    return memory


def _write(planner: WorkPlanner, facts: WorkFacts, home: torch.Tensor) -> torch.Tensor:
    """Write the list where it belongs; a GPU copies it from pinned memory, in the order of its stream.

    The pinned memory is PyTorch's, which does not give it to anybody else before the copy is done.
    """
    if home.device.type == "cpu":
        planner.write(home.data_ptr())
        return home
    pinned = torch.empty(facts.bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
    planner.write(pinned.data_ptr())
    to = home if home.numel() == facts.bytes else home[: facts.bytes]
    to.copy_(pinned, non_blocking=True)
    return home


def merge_shape(request: Request, problem: Problem, work: Work, facts: WorkFacts) -> MergeShape:
    """How the merge of a list is shared out. A captured graph keeps its grid, whatever later plans merge."""
    any_batch = bool(request.fixed_split_size) or request.disable_split_kv
    if problem.graph is not None:
        rows = max(1, _most_rows(request, problem.graph))
        return work.merge_shape(facts.merge_grid, rows, MERGE_THREADS, any_batch=any_batch)
    rows, states = request.max_qo_len or work.merge_rows, facts.num_states // facts.num_merges
    return work.merge_shape(facts.merge_grid, rows, states, any_batch=any_batch)


def _limits(request: Request, graph: GraphMemory) -> GraphLimits:
    return GraphLimits(graph.max_rows, _most_rows(request, graph), graph.max_keys)


def _most_rows(request: Request, graph: GraphMemory) -> int:
    """Query rows of one request of any plan of a graph, at most."""
    rows = request.max_qo_len if request.op is Op.BATCH_DECODE else None
    return graph.max_rows if rows is None else rows


def _arrays(level: Level) -> LevelArrays:
    page_size = 0 if level.pages is None else level.pages.page_size
    return LevelArrays(*level.addresses(), level.num_requests, page_size)


def first_table(problem: Problem, only_level: int) -> int:
    """Address of the page ids that all paged levels of a list count their places from; 0: none."""
    for number, level in enumerate(problem.levels):
        if level.pages is not None and only_level in (-1, number) and (at := level.pages.indices.data_ptr()):
            return at
    return 0


def _first_entries(problem: Problem, only_level: int) -> Sequence[int]:
    """Distance of each level's page ids from the first table."""
    first = first_table(problem, only_level)
    entries = []
    for level in problem.levels:
        at = 0 if level.pages is None else level.pages.indices.data_ptr()
        entries.append((at - first) // _ENTRY_BYTES if at else 0)
    return entries


def _args(request: Request, problem: Problem, work: Work, only_level: int) -> WorkArgs:
    mask = problem.mask
    return WorkArgs(
        problem.num_rows,
        request.num_qo_heads,
        request.num_kv_heads,
        request.head_dim_qk,
        *work.shapes,
        LAUNCH_NS,
        work.merge_rows,
        _MASK[request.mask],
        0 if mask is None else mask.indptr.data_ptr(),
        request.window_left,
        request.fixed_split_size or 0,
        int(request.disable_split_kv),
        _ANY if problem.workspace is None else problem.workspace.numel(),
        only_level,
    )

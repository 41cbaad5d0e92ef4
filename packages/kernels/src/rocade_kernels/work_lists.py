"""Work lists of the GPU attention kernel, planned by the native library from host addresses.

A list is planned first, which says how much memory it takes, and written once to where it is wanted.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from rocade_kernels import _abi, _work_abi
from rocade_kernels.cpu_plans import LevelArrays, check


class WorkShape(NamedTuple):
    """A shape of the attention kernel on one device. Times are those of a block while all blocks run."""

    rows: int  # packed query rows of a tile
    keys: int  # of a step
    blocks: int  # that run at the same time
    unit_blocks: int  # of them, on one compute unit
    step_ns: float  # a tile of rows against a step of keys
    item_ns: float  # what an item costs beside its steps
    piece_ns: float  # a tile of partial results: stored and merged


class WorkArgs(NamedTuple):
    """What a list depends on beside the levels, in the order of `rk_work_args` (planner/work_list.h)."""

    num_rows: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    few: WorkShape  # for few query rows: decode
    many: WorkShape
    launch_ns: float  # what one launch more costs
    merge_rows: int  # tokens a merge item
    mask: int = _abi.MASK_NONE
    mask_indptr: int = 0  # address of int64 [batch + 1]
    window_left: int = -1
    fixed_split_size: int = 0  # keys, 0: the planner decides
    disable_split: int = 0
    float_limit: int = -1  # bytes that partial states may take, with fewer cuts; -1: any
    only_level: int = -1  # a list for this level alone, with positions of the whole sequence


class GraphLimits(NamedTuple):
    """What all plans of a graph stay within."""

    max_rows: int  # query rows
    max_rows_request: int  # query rows of one request of the last level
    max_keys: tuple[int, ...]  # of all requests of each level together


class WorkFacts(NamedTuple):
    """Where the parts of a list are, in bytes from its start, and what to launch; `rk_work_facts`.

    Of the four in `grid` and `first_item` the first two are for paged levels, the others for dense ones; the
    first of two has few query rows a tile, the second many.

    Item b of a launch is the first one of its block b, or says no work (no KV heads); they are followed by
    those of the next launch. Numbers in `first_item`, counted from there, say where each block's other items
    are, behind those of all launches.
    """

    bytes: int
    capacity: int
    float_bytes: int
    lse_offset: int
    grid: tuple[int, ...]
    first_item: tuple[int, ...]
    merge_grid: int
    merge_count: int
    merges: int
    pieces: int
    positions: int
    items: int
    num_items: int
    num_merges: int
    num_states: int


class WorkPlanner:
    """Makes one list after another, in memory that it keeps. It belongs to one thread at a time."""

    __slots__ = ("_args", "_at", "_facts", "_handle", "_lib")

    def __init__(self) -> None:
        self._handle = 0
        self._lib = _work_abi.library()
        self._handle = self._lib.rk_work_create() or 0
        if not self._handle:
            raise MemoryError("planner: out of memory")
        self._facts = ctypes.create_string_buffer(_work_abi.WORK_FACTS.size)
        self._args = ctypes.create_string_buffer(_work_abi.WORK_ARGS.size)
        self._at = ctypes.addressof(self._args)

    def __del__(self) -> None:
        if self._handle:
            self._lib.rk_work_free(self._handle)

    def plan(
        self,
        levels: Sequence[LevelArrays],
        first_entry: Sequence[int],
        args: WorkArgs,
        graph: GraphLimits | None = None,
    ) -> WorkFacts:
        """Decide on a list; the arrays are read now and not kept.

        Args:
            levels: most shared first.
            first_entry: what is added to each level's places in its page table, or to its dense rows.
            args: the rest.
            graph: sizes and places are then for any plan within these limits.

        Raises:
            NativeError: arrays contradict each other, or the list is too long, or beyond the limits.
        """
        count = len(levels)
        numbers = [*itertools.chain.from_iterable(levels), *first_entry]
        if graph is not None:
            numbers += graph.max_keys
        arrays = (ctypes.c_int64 * len(numbers))(*numbers)
        at = ctypes.addressof(arrays)
        entries = at + count * _abi.LEVEL.size
        _work_abi.WORK_ARGS.pack_into(
            self._args,
            0,
            at,
            count,
            entries,
            *args[:4],
            *args[8:],
            *args[4],
            *args[5],
            args[6],
            args[7],
            *((0, 0, 0, 0) if graph is None else (1, *graph[:2], entries + 8 * count)),
        )
        check(self._lib.rk_work_plan(self._handle, self._at, self._facts), "plan")
        facts = _work_abi.WORK_FACTS.unpack(self._facts)
        return WorkFacts._make((*facts[:4], facts[4:8], facts[8:12], *facts[12:]))

    def write(self, address: int) -> None:
        """Write the list that was planned last to host memory of `facts.bytes` bytes, 16-byte aligned."""
        check(self._lib.rk_work_write(self._handle, address), "plan")

"""A plan of our attention kernels: a work list on the device, and the launches that a run makes of it.

Letters: T query rows, Hq and Hkv heads, D head dims, N pages of the pool, S page size, n dense K/V rows.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Sequence
from typing import NamedTuple

import torch

from arch_caps import Request
from rocade._dtypes import torch_dtype
from rocade._errors import invalid
from rocade._plan import KV, RunArgs, Source
from rocade._problem import Problem
from rocade.backends._gpu import Kernel, Launcher, gpu_on
from rocade.backends.hip._list import first_table, make_list, merge_shape
from rocade.backends.hip._repeats import Repeats
from rocade.backends.hip._work import MERGE_THREADS, work_of
from rocade_kernels import hip_abi
from rocade_kernels.attention_launch import AttentionShape
from rocade_kernels.runtime import Layout

log = logging.getLogger("rocade")

ALIGN = 16  # bytes, of every address and stride that the kernels see
# Dense keys are those of one page, of this size and with what divides by it; its number is a 0 in the list.
_DENSE_PAGE = (1 << 31, 2)
_ITEM_BYTES = ctypes.sizeof(hip_abi.AttentionItem)
_ZERO = 4  # bytes behind the number of merges
_RESULTS = ("out", "lse")
_STATE = ("state_out", "state_lse")
_LAYOUT = Layout(
    hip_abi.AttentionArgs,
    (
        *("items", "first_item", "q", "k", "v", *_RESULTS, "partial_out", "partial_lse", *_STATE),
        *("pages", "positions", "mask"),
        *("q_row", "q_head", "out_row", "out_head", "lse_row", "lse_head"),
        *("k_page", "k_row", "k_head", "v_page", "v_row", "v_head"),
        *("state_row", "state_head", "state_lse_row", "state_lse_head"),
        *("heads", "group", "head_dim", "group_magic", "page_size", "page_magic", "num_pages"),
        *("window_left", "scale", "soft_cap", "out_scale", "reserved"),
    ),
)
# Few query rows a tile, many; in the order of `Work.kernels`.
ATTENTION = tuple(Kernel("attention", _LAYOUT, variant) for variant in ("decode", ""))
MERGE_PARTIALS = Kernel(
    "merge_partials",
    Layout(
        hip_abi.MergePartialsArgs,
        (
            *("merges", "pieces", "count", "partial_out", "partial_lse", *_RESULTS, *_STATE),
            *("out_row", "out_head", "lse_row", "lse_head"),
            *("state_row", "state_head", "state_lse_row", "state_lse_head"),
            *("group", "group_magic", "packs", "packs_magic", "slices", "parts"),
        ),
    ),
)


class _Launch(NamedTuple):
    """One launch of the attention kernel, and the level that its K and V are of."""

    launcher: Launcher
    grid: tuple[int, int, int]
    threads: int
    lds: int
    items: int
    first_item: int
    paged: bool
    pages: tuple[int, int, int]  # address of page ids, page size and what divides by it
    levels: tuple[int, ...]  # that it is for: all with the same K and V


class _To(NamedTuple):
    """Where a run's results go: addresses, and the tensors that its kernels read and write."""

    partials: tuple[int, int]
    results: tuple[int, int]
    states: tuple[int, int]  # a state that is merged in, or zeros
    reads: tuple[torch.Tensor, ...]
    writes: tuple[torch.Tensor, ...]
    workspace: torch.Tensor  # holds the partial states: attention writes them, the merge reads them


class _Strides(NamedTuple):
    """Strides of rows and heads in the order of the arguments, for tensors whose own are `key`."""

    key: object
    query: tuple[int, ...] = ()
    result: tuple[int, ...] = ()
    state: tuple[int, ...] = ()


class _Cache(NamedTuple):
    """K and V that a run found to be readable: addresses and strides, and the latter as arguments."""

    key: object
    strides: tuple[int, ...] = ()


_NO_STRIDES, _NO_CACHE = _Strides(None), _Cache(None)


class AttentionPlan:
    """One list for all levels: a launch for each kind of tile and of K and V in it, and at most one merge."""

    backend = "hip"

    __slots__ = (
        "_caches",
        "_fixed",
        "_gpu",
        "_launches",
        "_list",
        "_merge",
        "_problem",
        "_reads",
        "_repeats",
        "_scratch",
        "_strides",
        "_work",
        "request",
        "workspace_bytes",
    )

    def __init__(self, request: Request, problem: Problem, only_level: int = -1) -> None:
        """Plan; `only_level` makes a list of that level's keys alone."""
        self.request = request
        self._problem = problem
        page_size, group, dim = request.page_size, request.group_size, request.head_dim_qk
        if page_size & (page_size - 1):
            _check_pages(request)
        self._gpu = gpu = gpu_on(problem.device)
        self._work = work_of(gpu, dim, group)
        self._list = planned = make_list(request, problem, self._work, only_level)
        self.workspace_bytes = planned.facts.float_bytes
        dtype = torch_dtype(request.q_dtype)
        self._launches = self._make_launches(dtype, only_level)
        self._merge = gpu.kernel(MERGE_PARTIALS, dtype) if planned.facts.merge_grid else None
        tables = [level.pages.indices for level in problem.levels if level.pages is not None]
        masks = () if problem.mask is None else (problem.mask.bits,)
        self._reads: tuple[torch.Tensor, ...] = (planned.memory, *tables, *masks)
        self._strides = _NO_STRIDES
        # Without a workspace it is the plan of one call. Others like it may use it on the same stream, where
        # the list arrives before they run, or in a graph once it has arrived; those with a mask never do.
        shared = not planned.has_workspace
        stream = gpu.stream() if shared else None
        self._repeats = Repeats(gpu, stream, is_shared=shared and problem.mask is None)
        self._scratch: torch.Tensor | None = None  # of the last run, if it is not the same in all
        self._caches = [_NO_CACHE] * len(self._launches)
        self._fixed = (request.num_qo_heads, group, dim, _magic(group))

    def _make_launches(self, dtype: torch.dtype, only_level: int) -> list[_Launch]:
        facts, work, gpu = self._list.facts, self._work, self._gpu
        base = self._list.memory.data_ptr()
        launches = []
        for number, blocks in enumerate(facts.grid):
            if not blocks:
                continue
            shape: AttentionShape = work.kernels[number % 2]
            launcher = gpu.kernel(ATTENTION[number % 2], dtype, work.kernel_dim)
            lds = shape.lds_bytes if gpu.gives_lds else 0
            paged = number < 2
            pages = self._pages(only_level) if paged else (base + facts.merge_count + _ZERO, *_DENSE_PAGE)
            items = base + facts.items + sum(facts.grid[:number]) * _ITEM_BYTES
            first = base + facts.first_item[number]
            grid, levels = (blocks, 1, 1), _levels(self._problem, only_level, paged=paged)
            launches.append(_Launch(launcher, grid, shape.threads, lds, items, first, paged, pages, levels))
        return launches

    def _pages(self, only_level: int) -> tuple[int, int, int]:
        size = self.request.page_size
        return first_table(self._problem, only_level), size, _magic(size)

    def run(self, args: RunArgs) -> None:
        """Compute attention into `args.out` and `args.lse`: launches only."""
        if not self._launches:
            return
        q, out, lse, state = args.q, args.out, args.lse, args.partial
        results = (out.data_ptr(), 0 if lse is None else lse.data_ptr())
        states = (0, 0) if state is None else (state.out.data_ptr(), state.lse.data_ptr())
        if (q.data_ptr() | results[0] | states[0]) % ALIGN or not self._knows_strides(args):
            self._run_aside(args)
            return
        workspace = self._list.workspace()
        # Memory of a graph is not kept: its pool could not give it to the graph's other calls.
        self._scratch = None if self._list.has_workspace or self._gpu.is_capturing() else workspace
        partials = workspace.data_ptr()
        to = _To(
            (partials, partials + self._list.facts.lse_offset),
            results,
            states,
            self._reads if state is None else (*self._reads, *state),
            (out,) if lse is None else (out, lse),
            workspace,
        )
        self._attend(args, to)
        if self._merge is not None:
            self._merge_partials(self._merge, to)

    def is_ready(self) -> bool:
        """See `RepeatablePlan`."""
        return self._repeats.is_ready()

    def lend_to_graph(self) -> bool:
        """See `RepeatablePlan`."""
        return self._repeats.lend_to_graph(self)

    def repeat(self, tensors: Sequence[torch.Tensor], scale: float, v_scale: float) -> bool:
        """See `RepeatablePlan`."""
        if not self._list.has_workspace and self.workspace_bytes:
            tensors = (*tensors, self._list.workspace())
        return self._repeats.run(tensors, scale, v_scale)

    def learn(self, args: RunArgs, tensors: Sequence[torch.Tensor], sources: Sequence[Source]) -> bool:
        """See `RepeatablePlan`."""
        launches = [(launch.launcher, sources[launch.levels[0]]) for launch in self._launches]
        if self._scratch is not None and self.workspace_bytes:
            tensors = (*tensors, self._scratch)
        self._scratch = None
        if not launches:
            return False
        return self._repeats.learn(launches, self._merge, args, tensors, self._list.facts.lse_offset)

    def _knows_strides(self, args: RunArgs) -> bool:
        """Whether the kernels can take strides like these; runs of one plan mostly have the same."""
        q, out, lse, state = args.q, args.out, args.lse, args.partial
        key = (
            q.stride(),
            out.stride(),
            None if lse is None else lse.stride(),
            None if state is None else (state.out.stride(), state.lse.stride()),
        )
        if key == self._strides.key:
            return True
        if not all(map(_is_readable, (q, out) if state is None else (q, out, state.out))):
            return False
        self._strides = _Strides(
            key,
            q.stride()[:2],
            (*out.stride()[:2], *((0, 0) if lse is None else lse.stride())),
            (0, 0, 0, 0) if state is None else (*state.out.stride()[:2], *state.lse.stride()),
        )
        return True

    def _attend(self, args: RunArgs, to: _To) -> None:
        request, facts, q, strides = self.request, self._list.facts, args.q, self._strides
        base = self._list.memory.data_ptr()
        positions = base + facts.positions if facts.positions >= 0 else 0
        mask = 0 if self._problem.mask is None else self._problem.mask.bits.data_ptr()
        for number, launch in enumerate(self._launches):
            k, v, kv_strides = self._keys_and_values(args, number, launch)
            block = launch.launcher.arguments()
            block.fill(
                *(launch.items, launch.first_item, q.data_ptr(), k.data_ptr(), v.data_ptr()),
                *to.results,
                *to.partials,
                *to.states,
                *(launch.pages[0], positions, mask),
                *strides.query,
                *strides.result,
                *kv_strides,
                *strides.state,
                *self._fixed,
                *launch.pages[1:],
                *(k.shape[0] if launch.paged else 1, request.window_left),
                *(args.sm_scale, request.logits_soft_cap, args.v_scale, 0),
            )
            reads = (*to.reads, q, k, v)
            writes = (*to.writes, to.workspace)
            launch.launcher.launch(launch.grid, launch.threads, block, reads, writes, launch.lds)

    def _keys_and_values(
        self, args: RunArgs, number: int, launch: _Launch
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
        """K, V and their strides, or those of copies that the kernels can read."""
        levels = [args.kv[level] for level in launch.levels]
        k, v = levels[0]
        key = (k.data_ptr(), v.data_ptr(), k.stride(), v.stride(), k.shape[0])
        known = self._caches[number]
        if len(levels) == 1 and key == known.key:
            return k, v, known.strides
        kv = _readable(levels)
        strides = (*_kv_strides(kv.k), *_kv_strides(kv.v))
        if kv is levels[0]:
            self._caches[number] = _Cache(key, strides)
        return kv.k, kv.v, strides

    def _merge_partials(self, merge: Launcher, to: _To) -> None:
        facts, request = self._list.facts, self.request
        base = self._list.memory.data_ptr()
        group, packs = request.group_size, request.head_dim_vo // 4
        shape = merge_shape(request, self._problem, self._work, facts)
        block = merge.arguments()
        block.fill(
            *(base + facts.merges, base + facts.pieces, base + facts.merge_count),
            *to.partials,
            *to.results,
            *to.states,
            *self._strides.result,
            *self._strides.state,
            *(group, _magic(group), packs, _magic(packs), shape.slices, shape.parts),
        )
        reads = (*to.reads, to.workspace)
        grid = (facts.merge_grid, shape.parts, 1)
        # In front is this run's attention. Until it waits it reads the list, which was there before that.
        merge.launch(grid, MERGE_THREADS, block, reads, to.writes, early=True)

    def _run_aside(self, args: RunArgs) -> None:
        """With copies of what lies where the kernels cannot read or store."""
        q, state = _aligned(args.q), args.partial
        out = args.out if _is_readable(args.out) else torch.empty_like(_aligned(args.out))
        if state is not None:
            state = state._replace(out=_aligned(state.out))
        self.run(RunArgs(q, args.kv, out, args.lse, args.sm_scale, args.v_scale, state))
        if out is not args.out:
            args.out.copy_(out)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if _is_readable(tensor) else tensor.clone(memory_format=torch.contiguous_format)


def _levels(problem: Problem, only_level: int, *, paged: bool) -> tuple[int, ...]:
    """The levels of a launch: all of a list that are paged, or all that are not."""
    if len(problem.levels) == 1:
        return (0,)
    return tuple(
        number
        for number, level in enumerate(problem.levels)
        if (level.pages is not None) is paged and only_level in (-1, number)
    )


@functools.lru_cache(maxsize=256)
def _magic(divisor: int) -> int:
    """What hip/division.hpp multiplies by to divide 32-bit numbers."""
    return 0 if divisor == 1 else -(-(1 << 32) // divisor)


def _check_pages(request: Request) -> None:
    """Dividing a key's number by a page size that is no power of two is exact below 2^32 / page size."""
    size, keys = request.page_size, request.max_kv_len or 0
    if size & (size - 1) and keys * size >= 1 << 32:
        expected = f"a power of two, or fewer than {(1 << 32) // size} tokens a request"
        raise invalid("page_size", f"{size} with a request of {keys} tokens", expected)


def _kv_strides(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Of page (0 when dense), row and head."""
    strides = tensor.stride()
    return (strides[0], strides[1], strides[2]) if len(strides) == 4 else (0, strides[0], strides[1])


def _readable(levels: list[KV]) -> KV:
    """K and V of a launch where the kernels can read them; a pool without pages becomes a page of zeros."""
    kv = levels[0]
    for other in levels[1:]:
        pairs = zip(kv, other, strict=True)
        if any(a.data_ptr() != b.data_ptr() or a.stride() != b.stride() for a, b in pairs):
            raise invalid("paged_kv_cache", "a cache for each level", "one cache for all paged levels")
    if kv.k.shape[0] == 0 and kv.k.dim() == 4:
        page = kv.k.new_zeros((1, *kv.k.shape[1:]))
        return KV(page, page)
    if _is_readable(kv.k) and _is_readable(kv.v):
        return kv
    _warn_of_copies()
    return KV(_aligned(kv.k), _aligned(kv.v))


@functools.cache
def _warn_of_copies() -> None:
    log.warning(
        "K or V has an address or strides that are no multiples of %d bytes: every run copies all of it",
        ALIGN,
    )


def _is_readable(tensor: torch.Tensor) -> bool:
    mixed = tensor.data_ptr()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size > 1 and stride != 1:
            mixed |= stride * tensor.itemsize
    return mixed % ALIGN == 0

"""What the GPU planner is told of a device: the kernel's shapes on it, how many blocks run, what things cost.

Costs are estimates from the table's facts. Only their ratios matter: they decide where work is cut, not what
comes out.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from arch_caps import TARGETS
from rocade.backends._gpu import Gpu
from rocade_kernels import attention_launch
from rocade_kernels.attention_launch import AttentionShape
from rocade_kernels.work_lists import WorkShape

LAUNCH_NS = 4000.0  # one kernel more on a stream: its start, and the blocks that wait for the last one before
_ITEM_NS = 1500.0  # the first loads of an item, which nothing hides, and its result
_PIECE_NS = 300.0  # to find and merge one more partial tile, beside its bytes
_EFFICIENCY = 0.45  # of the peak of matrix instructions that a tile reaches
# Where the table does not know: what a tile reaches per compute unit and clock (an H200's mma.sync), MHz, 1e9
# bytes a second of the whole device.
_REACHED_FLOPS, _CLOCK_MHZ, _BANDWIDTH = 1650.0, 1700.0, 3300.0
_MERGE_COLUMNS = 1024  # packs of four elements that a merge item has at most, if it has several rows
_LEAST_COLUMNS = 32  # packs that the slices of a block share, at least: a whole wave reads neighbours
_MERGE_BLOCKS = 2  # of a compute unit, of a small merge
MERGE_THREADS = 256


class Work(NamedTuple):
    """Everything that depends on the device and the shape of heads alone."""

    kernel_dim: int
    kernels: tuple[AttentionShape, AttentionShape]  # few query rows, many
    shapes: tuple[WorkShape, WorkShape]
    merge_rows: int
    merge_row: int  # packs of a merged row
    units: int

    def merge_shape(self, items: int, rows: int, states: int, *, any_batch: bool) -> MergeShape:
        """How merge items of up to so many rows, of `states` states each, are shared out.

        By more blocks while they are few, and by no more slices than there are states. Slices decide in which
        order states add up: with `any_batch` they are the same whatever is merged.
        """
        packs = min(rows, self.merge_rows) * self.merge_row
        shape = MergeShape(1, 1)
        while shape.slices * _LEAST_COLUMNS < MERGE_THREADS and (any_batch or 2 * shape.slices <= states):
            slices = 2 * shape.slices
            parts = -(-packs * slices // MERGE_THREADS)
            if not any_batch and parts > 1 and items * parts > _MERGE_BLOCKS * self.units:
                break
            shape = MergeShape(slices, parts)
        return shape


class MergeShape(NamedTuple):
    """Threads that share the states of a row, and blocks that share the rows of a merge item."""

    slices: int  # a power of two
    parts: int


def work_of(gpu: Gpu, head_dim: int, group: int) -> Work:
    """Shapes and costs for heads of `head_dim`, `group` query heads a KV head."""
    return _work(gpu.target, gpu.units, gpu.wave, gpu.lds_bytes, head_dim, group)


@functools.lru_cache(maxsize=256)
def _work(target: str, units: int, wave: int, lds_bytes: int, head_dim: int, group: int) -> Work:
    dim = attention_launch.kernel_dim(head_dim)
    few = attention_launch.shape(dim, True, wave=wave, lds_bytes=lds_bytes)
    many = attention_launch.shape(dim, False, wave=wave, lds_bytes=lds_bytes)
    rates = _Rates.of(target, units)
    row = group * (head_dim // 4)
    shapes = [
        rates.shape(kernel, dim, head_dim, rows, units, _unit_blocks(kernel, lds_bytes))
        for kernel, rows in ((few, min(few.rows, group)), (many, many.rows))
    ]
    return Work(dim, (few, many), (shapes[0], shapes[1]), max(1, _MERGE_COLUMNS // row), row, units)


def _unit_blocks(kernel: AttentionShape, lds_bytes: int) -> int:
    """Blocks that a compute unit runs at the same time."""
    return max(1, min(lds_bytes // kernel.lds_bytes, kernel.blocks))


class _Rates(NamedTuple):
    """What one compute unit does in a nanosecond while all of them work."""

    bytes: float
    flops: float  # of matrix instructions that tiles reach

    @classmethod
    def of(cls, target: str, units: int) -> _Rates:
        table = TARGETS[target]
        sku = next((sku for sku in table.skus if sku.compute_units == units), None)
        clock = (sku.clock_mhz if sku else None) or _CLOCK_MHZ
        bandwidth = (sku.bandwidth_gbs if sku else None) or _BANDWIDTH
        rates = [2.0 * m.m * m.n * m.k / m.clocks for m in table.matrix if m.clocks and m.in_dtype == "bf16"]
        flops = max(rates, default=0.0) * (table.simds.value or 0) * _EFFICIENCY or _REACHED_FLOPS
        return cls(bandwidth / units, flops * clock / 1000)

    def shape(
        self, kernel: AttentionShape, kernel_dim: int, head_dim: int, rows: int, units: int, unit_blocks: int
    ) -> WorkShape:
        """`rows` that a partial tile mostly has; the blocks of a unit share what it does."""
        read = kernel.keys * head_dim * 4 / self.bytes  # keys and values, two bytes each
        multiply = 4.0 * kernel.rows * kernel.keys * kernel_dim / self.flops
        partial = 2 * rows * head_dim * 4 / self.bytes  # stored, then read
        return WorkShape(
            rows=kernel.rows,
            keys=kernel.keys,
            blocks=units * unit_blocks,
            unit_blocks=unit_blocks,
            step_ns=max(read, multiply) * unit_blocks,
            item_ns=_ITEM_NS,
            piece_ns=_PIECE_NS + partial * unit_blocks,
        )

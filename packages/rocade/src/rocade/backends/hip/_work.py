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
# Where the table does not know: per compute unit and clock, MHz, 1e9 bytes a second of the whole device.
_FLOPS, _CLOCK_MHZ, _BANDWIDTH = 2048.0, 1700.0, 3300.0
_THREADS_A_UNIT = 8  # times the wave size: blocks of this kernel take so many registers that no more run
_MERGE_COLUMNS = 1024  # packs of four elements that a merge item has at most, if it has several rows
MERGE_THREADS = 256


class Work(NamedTuple):
    """Everything that depends on the device and the shape of heads alone."""

    kernel_dim: int
    kernels: tuple[AttentionShape, AttentionShape]  # few query rows, many
    shapes: tuple[WorkShape, WorkShape]
    merge_rows: int
    merge_slices: int


def work_of(gpu: Gpu, head_dim: int, group: int) -> Work:
    """Shapes and costs for heads of `head_dim`, `group` query heads a KV head."""
    return _work(gpu.target, gpu.units, gpu.wave, gpu.lds_bytes, head_dim, group)


@functools.lru_cache(maxsize=256)
def _work(target: str, units: int, wave: int, lds_bytes: int, head_dim: int, group: int) -> Work:
    dim = attention_launch.kernel_dim(head_dim)
    few = attention_launch.shape(dim, True, wave=wave, lds_bytes=lds_bytes)
    many = attention_launch.shape(dim, False, wave=wave, lds_bytes=lds_bytes)
    facts = _Rates.of(target, units)
    row = group * (head_dim // 4)  # packs of a merged row
    slices = 1
    while slices * 2 * row <= MERGE_THREADS and slices < MERGE_THREADS // 32:
        slices *= 2
    return Work(
        dim,
        (few, many),
        (
            facts.shape(few, dim, head_dim, units * _blocks(few, wave, lds_bytes)),
            facts.shape(many, dim, head_dim, units * _blocks(many, wave, lds_bytes)),
        ),
        max(1, _MERGE_COLUMNS // row),
        slices,
    )


def _blocks(shape: AttentionShape, wave: int, lds_bytes: int) -> int:
    """Blocks that a compute unit runs at the same time."""
    return max(1, min(lds_bytes // shape.lds_bytes, _THREADS_A_UNIT * wave // shape.threads))


class _Rates(NamedTuple):
    """What one compute unit does in a nanosecond while all of them work."""

    bytes: float
    flops: float

    @classmethod
    def of(cls, target: str, units: int) -> _Rates:
        table = TARGETS[target]
        sku = next((sku for sku in table.skus if sku.compute_units == units), None)
        clock = (sku.clock_mhz if sku else None) or _CLOCK_MHZ
        bandwidth = (sku.bandwidth_gbs if sku else None) or _BANDWIDTH
        rates = [2.0 * m.m * m.n * m.k / m.clocks for m in table.matrix if m.clocks and m.in_dtype == "bf16"]
        flops = max(rates, default=0.0) * (table.simds.value or 0) or _FLOPS
        return cls(bandwidth / units, flops * clock / 1000)

    def shape(self, kernel: AttentionShape, kernel_dim: int, head_dim: int, blocks: int) -> WorkShape:
        read = kernel.keys * head_dim * 4 / self.bytes  # keys and values, two bytes each
        multiply = 4.0 * kernel.rows * kernel.keys * kernel_dim / (self.flops * _EFFICIENCY)
        return WorkShape(
            rows=kernel.rows,
            keys=kernel.keys,
            blocks=blocks,
            step_ns=max(read, multiply),
            item_ns=_ITEM_NS,
            piece_ns=_PIECE_NS + kernel.rows * head_dim * 4 / self.bytes,
        )

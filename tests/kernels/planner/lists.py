"""Makes and reads GPU work lists for tests; what an item covers is worked out here again, in plain Python."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rocade_kernels import _work_abi
from rocade_kernels.cpu_plans import LevelArrays
from rocade_kernels.work_lists import GraphLimits, WorkArgs, WorkFacts, WorkPlanner, WorkShape

FEW = WorkShape(rows=16, keys=64, blocks=40, unit_blocks=2, step_ns=1900.0, item_ns=1500.0, piece_ns=500.0)
MANY = WorkShape(rows=128, keys=64, blocks=40, unit_blocks=2, step_ns=2700.0, item_ns=3000.0, piece_ns=3000.0)
CAUSAL, AT_POSITIONS = 1, 2


class Level(NamedTuple):
    """Rows and keys of each request of one level; dense when `page_size` is 0."""

    qo: list[int]
    kv: list[int]
    page_size: int = 0
    first_entry: int = 0


class Item(NamedTuple):
    """One item, with the shape (0 few rows, 1 many) and block that takes it."""

    shape: int
    block: int
    mask_bit: int
    kv_base: int
    q_begin: int
    q_len: int
    row_begin: int
    kv_head: int
    kv_begin: int
    kv_end: int
    q_position: int
    kv_position: int
    flags: int
    state: int
    kv_heads: int
    mask_step: int


class Merge(NamedTuple):
    """One merge item with its pieces."""

    row: int
    rows: int
    kv_head: int
    pieces: tuple[int, ...]


@dataclass
class WorkList:
    """A whole list, decoded."""

    facts: WorkFacts
    args: WorkArgs
    raw: bytes
    items: list[Item] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    positions: list[int] | None = None

    @property
    def group(self) -> int:
        return self.args.num_qo_heads // self.args.num_kv_heads

    def shape(self, number: int) -> WorkShape:
        return (self.args.few, self.args.many)[number]

    def rows_of(self, item: Item) -> range:
        """Packed rows of the item: token * group + head of the group, from the item's own first token."""
        end = min(item.q_len * self.group, item.row_begin + self.shape(item.shape).rows)
        return range(item.row_begin, end)


def prefix_sums(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)


def arguments(levels: list[Level], heads: tuple[int, int], **options: object) -> WorkArgs:
    given: dict[str, object] = {"few": FEW, "many": MANY, "launch_ns": 3000.0, "merge_rows": 8, **options}
    return WorkArgs(sum(levels[0].qo), *heads, 128, **given)  # type: ignore[arg-type]


_KEPT = WorkPlanner()


def make(
    levels: list[Level],
    heads: tuple[int, int] = (8, 2),
    *,
    graph: GraphLimits | None = None,
    planner: WorkPlanner = _KEPT,
    **options: object,
) -> WorkList:
    """Plan and write a list into memory of exactly its size, then decode it."""
    qo = [prefix_sums(level.qo) for level in levels]
    kv = [
        prefix_sums([-(-n // level.page_size) if level.page_size else n for n in level.kv])
        for level in levels
    ]
    length = [np.array(level.kv, np.int32) for level in levels]
    arrays = [
        LevelArrays(q.ctypes.data, k.ctypes.data, n.ctypes.data, len(n), level.page_size)
        for q, k, n, level in zip(qo, kv, length, levels, strict=True)
    ]
    args = arguments(levels, heads, **options)
    facts = planner.plan(arrays, [level.first_entry for level in levels], args, graph)
    room = np.full(facts.bytes + 32, 0xA5, np.uint8)
    start = -room.ctypes.data % 16
    planner.write(room.ctypes.data + start)
    assert (room[start + facts.bytes :] == 0xA5).all()
    return decode(facts, args, room[start : start + facts.bytes].tobytes(), sum(levels[0].qo))


def decode(facts: WorkFacts, args: WorkArgs, raw: bytes, rows: int) -> WorkList:
    made = WorkList(facts, args, raw)
    own = 0  # first item of the launch's block 0
    for launch, (at, grid) in enumerate(zip(facts.first_item, facts.grid, strict=True)):
        others = np.frombuffer(raw, np.int32, grid + 1, at)
        assert (np.diff(others) >= 0).all()
        for block in range(grid):
            for n in (block, *range(others[block], others[block + 1])):
                place = facts.items + (own + n) * _work_abi.WORK_ITEM.size
                item = Item(launch % 2, block, *_work_abi.WORK_ITEM.unpack_from(raw, place))
                if item.kv_heads:
                    made.items.append(item)
                else:
                    assert n == block
                    assert others[block] == others[block + 1]
        own += grid
    assert len(made.items) == facts.num_items
    count = int(np.frombuffer(raw, np.int32, 1, facts.merge_count)[0])
    assert count == facts.num_merges
    for n in range(count):
        row, size, head, at, pieces, _ = _work_abi.WORK_MERGE.unpack_from(
            raw, facts.merges + n * _work_abi.WORK_MERGE.size
        )
        found = np.frombuffer(raw, np.int32, pieces, facts.pieces + 4 * at)
        made.merges.append(Merge(row, size, head, tuple(map(int, found))))
    if facts.positions >= 0:
        made.positions = np.frombuffer(raw, np.int32, rows, facts.positions).tolist()
    return made


def fields_of(structure: type[ctypes.Structure]) -> list[tuple[str, int, int]]:
    """Name, offset and size of each field."""
    return [
        (name, getattr(structure, name).offset, getattr(structure, name).size)
        for name, *_ in structure._fields_
    ]


def by_head(made: WorkList) -> list[Item]:
    """Items of one KV head each, whatever block has them."""
    return sorted(
        item._replace(block=0, kv_head=item.kv_head + n, kv_heads=1)
        for item in made.items
        for n in range(item.kv_heads)
    )

"""The table assembled: targets by name, rows and recorded defects by (op, backend)."""

from __future__ import annotations

from types import MappingProxyType

from arch_caps._defects import Defect
from arch_caps._row import Row
from arch_caps._types import Op
from arch_caps.defects import aiter as aiter_defects
from arch_caps.rows import aiter_asm, aiter_ck, cpu, hip, torch
from arch_caps.targets import cpu_generic, cpu_x86_64, gfx942, gfx950, sm_80, sm_90

TARGETS = MappingProxyType(
    {module.TARGET.name: module.TARGET for module in (gfx942, gfx950, sm_80, sm_90, cpu_x86_64, cpu_generic)}
)


def _index(rows: tuple[Row, ...]) -> MappingProxyType[tuple[Op, str], Row]:
    table: dict[tuple[Op, str], Row] = {}
    for entry in rows:
        key = (entry.op, entry.backend)
        if key in table:
            raise ValueError(f"two rows for ({entry.op}, {entry.backend})")
        table[key] = entry
    return MappingProxyType(table)


ROWS = _index((*cpu.ROWS, *hip.ROWS, *aiter_asm.ROWS, *aiter_ck.ROWS, *torch.ROWS))


def _by_row(defects: tuple[Defect, ...]) -> MappingProxyType[tuple[Op, str], tuple[Defect, ...]]:
    table: dict[tuple[Op, str], tuple[Defect, ...]] = {}
    ids = [defect.id for defect in defects]
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    if repeated:
        raise ValueError(f"defects recorded twice: {', '.join(repeated)}")
    for defect in defects:
        for op in defect.ops:
            table[op, defect.backend] = (*table.get((op, defect.backend), ()), defect)
    return MappingProxyType(table)


DEFECTS = _by_row(aiter_defects.DEFECTS)


def row(op: Op, backend: str) -> Row | None:
    """The row of an implementation, or None when there is none."""
    return ROWS.get((op, backend))

"""The table assembled: targets by name, rows by (op, backend), and the order in which backends are tried."""

from __future__ import annotations

from types import MappingProxyType

from arch_caps._row import Row
from arch_caps._target import Target, target_of
from arch_caps._types import Op
from arch_caps.rows import cpu, torch

TARGETS = MappingProxyType(
    {name: Target(name=name) for name in ("gfx942", "gfx950", "sm_80", "sm_90", "cpu-x86_64", "cpu-generic")}
)


def _index(rows: tuple[Row, ...]) -> MappingProxyType[tuple[Op, str], Row]:
    table: dict[tuple[Op, str], Row] = {}
    for entry in rows:
        key = (entry.op, entry.backend)
        if key in table:
            raise ValueError(f"two rows for ({entry.op}, {entry.backend})")
        table[key] = entry
    return MappingProxyType(table)


ROWS = _index((*cpu.ROWS, *torch.ROWS))


def row(op: Op, backend: str) -> Row | None:
    """The row of an implementation, or None when there is none."""
    return ROWS.get((op, backend))


def preference(target: str) -> tuple[str, ...]:
    """Backends in the order in which `backend="auto"` tries them on a target."""
    name = target_of(target)
    if name.startswith("cpu"):
        return ("cpu", "torch")
    if name.startswith("gfx"):
        return ("hip", "aiter", "torch")
    return ("hip", "torch") if name.startswith("sm_") else ("torch",)

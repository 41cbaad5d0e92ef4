"""The list of GPU kernels to build ahead of time, from built rows. A planned row builds nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from arch_caps._predicate import Predicate
from arch_caps._row import Row
from arch_caps._table import TARGETS
from arch_caps._types import DType, Status

PROLOGUE = '''\
from typing import NamedTuple


class Instance(NamedTuple):
    """One kernel to compile: operation, target and storage type."""

    op: str
    target: str
    dtype: str


'''


def instance_list(rows: Iterable[Row]) -> str:
    """The module's text, below its docstring."""
    lines = [f"    {line},\n" for line in _instances(rows)]
    body = "INSTANCES: tuple[Instance, ...] = (" + ("\n" + "".join(lines) if lines else "") + ")\n"
    return PROLOGUE + body


def _instances(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        if row.status is Status.BUILT and not row.op.is_attention:
            for target in _accepted(row.targets, TARGETS):
                for dtype in _accepted(row.accepts.q_dtype, DType):
                    yield f'Instance("{row.op}", "{target}", "{dtype}")'


def _accepted(predicate: Predicate, values: Iterable[str]) -> list[str]:
    return [value for value in values if predicate.holds(value, None)]

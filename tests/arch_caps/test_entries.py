"""Every built row names code that exists: no row may claim an implementation that is not there."""

from __future__ import annotations

from functools import reduce
from importlib import import_module

import pytest

from arch_caps import ROWS, Row, Status

BUILT = [row for row in ROWS.values() if row.status is Status.BUILT]


@pytest.mark.parametrize("row", BUILT, ids=lambda row: f"{row.op}-{row.backend}")
def test_entry_resolves(row: Row) -> None:
    module, attributes = row.entry.split(":")
    entry = reduce(getattr, attributes.split("."), import_module(module))
    assert callable(entry)


def test_backends_of_built_rows_are_registered() -> None:
    registry = import_module("rocade.backends").REGISTRY
    assert {row.backend for row in BUILT} == set(registry)
    assert all(registry[name].name == name for name in registry)

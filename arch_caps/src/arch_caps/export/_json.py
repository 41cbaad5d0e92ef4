"""The table as JSON, for readers that are not Python."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from arch_caps._code_object import CodeObject
from arch_caps._defects import Defect
from arch_caps._kernel import Kernel
from arch_caps._row import Accepts, Row
from arch_caps._table import DEFECTS, ROWS, TARGETS
from arch_caps._target import Fact, Matrix, Sku, Target
from arch_caps.export._claims import Claims, state


def table_json(claims: Claims, generated: str) -> str:
    """The whole table; `generated` is the notice, which lands on the first line."""
    data = {
        "targets": [_target(target) for target in TARGETS.values()],
        "rows": [_row(entry, claims) for entry in ROWS.values()],
        "defects": [_defect(d) for d in {d.id: d for found in DEFECTS.values() for d in found}.values()],
    }
    body = json.dumps(data, indent=1, ensure_ascii=False)
    return '{ "generated": ' + json.dumps(generated) + ",\n" + body.removeprefix("{\n") + "\n"


def _row(entry: Row, claims: Claims) -> dict[str, Any]:
    return {
        "op": entry.op,
        "backend": entry.backend,
        "status": entry.status,
        "entry": entry.entry,
        "targets": str(entry.targets),
        "accepts": {field.name: str(getattr(entry.accepts, field.name)) for field in fields(Accepts)},
        "kernels": [_plain(kernel) for kernel in entry.kernels],
        "objects": [_plain(found) for found in entry.objects],
        "lse": entry.lse,
        "partial_state": entry.partial_state,
        "source": entry.source,
        "note": entry.note,
        "states": {name: state(entry.op, entry.backend, name, claims) for name in TARGETS},
    }


def _defect(defect: Defect) -> dict[str, Any]:
    return {
        "id": defect.id,
        "backend": defect.backend,
        "ops": list(defect.ops),
        "targets": list(defect.targets),
        "versions": {axis: str(window) for axis, window in defect.windows()},
        "when": {field: str(predicate) for field, predicate in defect.when},
        "detail": defect.detail,
        "source": defect.source,
    }


def _target(target: Target) -> dict[str, Any]:
    facts = ((field.name, getattr(target, field.name)) for field in fields(target))
    return {
        "name": target.name,
        "vendor": target.vendor,
        "title": target.title,
        "facts": {
            name: {"value": fact.value, "source": fact.source}
            for name, fact in facts
            if isinstance(fact, Fact)
        },
        "products": [_plain(sku) for sku in target.skus],
        "matrix": [_plain(matrix) for matrix in target.matrix],
        "features": {has.feature.name: {"level": has.level, "source": has.source} for has in target.features},
    }


def _plain(item: Sku | Matrix | Kernel | CodeObject) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in fields(item)}

"""The documentation page on what runs where: matrix, limits, defects, evidence and facts of the silicon."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from arch_caps._code_object import CodeObject
from arch_caps._defects import Defect
from arch_caps._predicate import shown
from arch_caps._row import Accepts, Row
from arch_caps._table import DEFECTS, ROWS, TARGETS
from arch_caps._target import Fact, Feature, Matrix, Sku, Target
from arch_caps._types import Op
from arch_caps.export._claims import Claims, state
from arch_caps.export._matrix import BACKENDS, SHOWN_TARGETS, defects_of, legend, table

INTRODUCTION = """\
# What runs where

Which backend serves which operation on which target, how that was checked, and what each accepts. The gate
that decides at run time, the skips of the tests and this page are computed from one table, `arch_caps`; the
matrix claims no more than the recorded evidence does. `rocade explain` answers for one call.
"""


def support_page(claims: Claims) -> str:
    """The whole page, below its first line."""
    parts = [
        INTRODUCTION,
        "## Matrix\n",
        "\n".join(legend()) + "\n",
        "Numbers refer to [known defects](#known-defects).\n",
        _matrix(claims),
        "## What each backend accepts\n",
        "A request outside of a limit is refused, and the message names the limit. Page size 0 means K and\n"
        "V that are not paged; `fixed_split_size` is set by callers that want batch-invariant results.\n",
        *(_limits(backend) for backend in BACKENDS),
        _code_objects(),
        _defects(),
        _evidence(claims),
        "## Facts of the silicon\n",
        *(_target(target) for target in TARGETS.values()),
    ]
    return "\n".join(parts)


def _matrix(claims: Claims) -> str:
    head = ["Operation", "Backend", *(TARGETS[name].title for name in SHOWN_TARGETS), "Note"]
    rows = [
        [
            str(op),
            f"`{backend}`",
            *(
                state(op, backend, target, claims) + _references(op, backend, target)
                for target in SHOWN_TARGETS
            ),
            entry.note,
        ]
        for op in Op
        for backend in BACKENDS
        if (entry := ROWS.get((op, backend))) is not None
    ]
    return table(head, rows)


def _all_defects() -> list[Defect]:
    return list({defect.id: defect for found in DEFECTS.values() for defect in found}.values())


def _references(op: Op, backend: str, target: str) -> str:
    numbers = {defect.id: number for number, defect in enumerate(_all_defects(), 1)}
    found = defects_of(op, backend, target)
    return "".join(f" [{numbers[defect.id]}](#{defect.id})" for defect in found)


def _limits(backend: str) -> str:
    rows = [entry for entry in ROWS.values() if entry.backend == backend]
    groups: dict[Accepts, list[Row]] = {}
    for entry in rows:
        groups.setdefault(entry.accepts, []).append(entry)
    columns = groups.values()
    head = ["", *(", ".join(entry.op for entry in group) for group in columns)]
    body = [
        [f"`{field.name}`", *(str(getattr(accepts, field.name)) for accepts in groups)]
        for field in fields(Accepts)
    ]
    body.append(["log-sum-exp", *(_joined(str(entry.lse) for entry in group) for group in columns)])
    body.append(["`partial_state`", *(_joined(shown(e.partial_state) for e in group) for group in columns)])
    status = _joined(str(entry.status) for entry in rows)
    sources = _joined(entry.source for entry in rows)
    targets = _joined(str(entry.targets) for entry in rows)
    return (
        f"### Backend `{backend}`\n\nStatus: {status}. Targets: {targets}. Limits from: {sources}.\n\n"
        + table(head, body)
    )


def _code_objects() -> str:
    """Prebuilt kernels of other projects that rows launch."""
    users: dict[CodeObject, list[str]] = {}
    for entry in ROWS.values():
        for found in entry.objects:
            users.setdefault(found, []).append(f"`{entry.backend}`")
    head = ["File", "Target", "For", "Backend", "Mask", "Head sizes", "In versions", "SHA-256"]
    rows = [
        [
            f"`{found.file}`",
            found.target,
            found.product or "all",
            _joined(names),
            "causal" if found.causal else "none",
            f"{found.head_dim_qk}, {found.head_dim_vo}",
            ", ".join(found.seen_in),
            f"`{found.sha256[:16]}...`",
        ]
        for found, names in users.items()
    ]
    text = (
        "Prebuilt kernels of other projects, as executed. Files of other hashes are unknown, and refused.\n"
    )
    return "\n".join(["## Code objects\n", text, table(head, rows)])


def _joined(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _defects() -> str:
    lines = [
        "## Known defects\n",
        "A call that may hit one is refused while the installed versions are in its window; a version or",
        "length that is not known counts as hit. `ROCADE_ALLOW_KNOWN_BAD` overrides a defect by its id.\n",
    ]
    for number, defect in enumerate(_all_defects(), 1):
        lines += [f"### {defect.id}\n", f"{number}. {defect.detail}.\n"]
        lines += [f"- backend `{defect.backend}` on {', '.join(defect.targets)}: {', '.join(defect.ops)}"]
        lines += [f"- {defect.scope()}", f"- source: {_link(defect.source)}\n"]
    return "\n".join(lines)


def _link(source: str) -> str:
    return f"<{source}>" if source.startswith("https://") else source


def _evidence(claims: Claims) -> str:
    if not claims:
        return "## Evidence\n\nNo run is recorded.\n"
    rows = [
        [
            str(op),
            f"`{backend}`",
            target,
            state(op, backend, target, claims),
            str(claim.cases),
            claim.on,
            claim.date,
            ", ".join(f"{name} {version}" for name, version in claim.toolchain.items()),
        ]
        for (op, backend, target), claim in sorted(claims.items())
    ]
    head = ["Operation", "Backend", "Target", "How", "Cases passed", "On", "Date", "With"]
    return "## Evidence\n\n" + table(head, rows)


def _target(target: Target) -> str:
    facts = [
        [field.name.replace("_", " "), _value(fact), fact.source]
        for field in fields(target)
        if isinstance(fact := getattr(target, field.name), Fact)
    ]
    levels = [[str(has.feature), str(has.level), has.source] for has in map(target.fact, Feature)]
    parts = [
        f"### {target.title}\n",
        table(["Fact", "Value", "Source"], facts),
        table(["Feature", "Level", "Source"], levels),
    ]
    if target.skus:
        head = ["Product", "Compute units", "MHz", "GB/s", "Last-level cache, MiB", "Source"]
        parts.append(table(head, map(_sku, target.skus)))
    if target.matrix:
        head = ["Matrix instruction", "m x n x k", "In", "Out", "Clocks", "Source"]
        parts.append(table(head, map(_instruction, target.matrix)))
    return "\n".join(parts)


def _sku(sku: Sku) -> list[str]:
    numbers = (sku.compute_units, sku.clock_mhz, sku.bandwidth_gbs, sku.last_level_cache_mib)
    return [sku.name, *map(_known, numbers), sku.source]


def _instruction(matrix: Matrix) -> list[str]:
    shape = f"{matrix.m} x {matrix.n} x {matrix.k}"
    types = [str(matrix.in_dtype), str(matrix.out_dtype)]
    return [f"`{matrix.name}`", shape, *types, _known(matrix.clocks), matrix.source]


def _value(fact: Fact[object]) -> str:
    if isinstance(fact.value, tuple):
        return ", ".join(map(str, fact.value)) or "none"
    return _known(fact.value)


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)

"""Cases for an implementation that accepts few of the grid's: pairs of the values that its row accepts.

Most cases of the grid have some value that a kernel for one head size and dtype refuses. What is left of 300
cases may be one. So pairs are covered again, among accepted values alone.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from functools import cache

from arch_caps import Op
from rocade.conformance.axes import Axes, all_axes
from rocade.conformance.cases import Case
from rocade.conformance.grid import NARROW_FIRST, Facts, case_of, cases, cover_pairs
from rocade.conformance.runner import reasons_of

ENOUGH = 20  # accepted cases of the grid; with fewer, these cases are run, too


def narrow(op: Op, backend: str, target: str) -> tuple[Case, ...]:
    """The cases that are run beside the grid's; none where the table accepts enough of those, or nothing."""
    if not op.is_attention:
        return ()
    accepted = sum(_is_accepted(case, backend, target) for case in cases(op))
    return () if accepted >= ENOUGH else _cases(op, backend, target)


def find(op: Op, backend: str, target: str, index: int) -> Case | None:
    """The one case of this index; None when there is none."""
    found = narrow(op, backend, target)
    at = index - NARROW_FIRST
    return found[at] if 0 <= at < len(found) else None


@cache
def _cases(op: Op, backend: str, target: str) -> tuple[Case, ...]:
    base = _accepted_facts(op, backend, target)
    if base is None:
        return ()
    axes: Axes = {
        axis: tuple(v for v in values if _may_stand(op, {**base, axis: v}, backend, target))
        for axis, values in all_axes(op).items()
    }
    rows = cover_pairs(axes, [], random.Random(f"rocade narrow {op.value}"))
    made = (case_of(op, NARROW_FIRST + at, facts) for at, facts in enumerate(rows))
    return tuple(case for case in made if _is_accepted(case, backend, target))


def _accepted_facts(op: Op, backend: str, target: str) -> Facts | None:
    """Facts that the table accepts, found axis by axis; None when it accepts nothing."""
    axes = all_axes(op)
    facts: Facts = {axis: values[0] for axis, values in axes.items()}
    for axis, values in axes.items():
        facts[axis] = min(values, key=lambda v: _objections(op, facts, axis, v, backend, target))
    return facts if _may_stand(op, facts, backend, target) else None


def _objections(op: Op, facts: Facts, axis: str, value: Hashable, backend: str, target: str) -> int:
    return len(reasons_of(case_of(op, 0, {**facts, axis: value}), backend, target))


def _may_stand(op: Op, facts: Facts, backend: str, target: str) -> bool:
    return _is_accepted(case_of(op, 0, facts), backend, target)


def _is_accepted(case: Case, backend: str, target: str) -> bool:
    return not reasons_of(case, backend, target)

"""The gate: compare a request with a row and say every reason why not. Unknown never means yes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from arch_caps._defects import Defect
from arch_caps._predicate import ANY, Predicate, shown, told
from arch_caps._request import Request
from arch_caps._row import Accepts, Row
from arch_caps._settings import allows_known_bad
from arch_caps._table import DEFECTS, ROWS, TARGETS
from arch_caps._target import target_of
from arch_caps._types import Level, Op, Status
from arch_caps._versions import Toolchain

Check: TypeAlias = tuple[str, Predicate]

_UNKNOWN_TOOLCHAIN = Toolchain()
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a backend refuses a request: what was asked, and what would have been accepted."""

    code: str  # the request's field, or "row", "target", "planned", "feature", "defect"
    text: str
    source: str = ""  # where the limit comes from

    def __str__(self) -> str:
        return f"{self.text} [{self.source}]" if self.source else self.text


class KnownBadWarning(RuntimeWarning):
    """A recorded defect is passed over because a setting (`ROCADE_ALLOW_KNOWN_BAD`) says so."""


class ArchCapabilityError(ValueError, RuntimeError):
    """No backend accepts the request. Lists, for each backend tried, every reason.

    Both bases are there so that code that expects either of them keeps working.
    """

    def __init__(self, request: Request, refusals: Mapping[str, Sequence[Reason]]) -> None:
        self.request = request
        self.refusals = {backend: tuple(reasons) for backend, reasons in refusals.items()}
        super().__init__(self._message())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.request, self.refusals)

    def _message(self) -> str:
        lines = [f"no backend accepts this {self.request.op} call:"]
        for backend, reasons in self.refusals.items():
            lines.append(f"  {backend}:")
            lines += [f"    - {reason}" for reason in reasons]
        return "\n".join(lines)


def reasons(
    request: Request, *, backend: str, target: str, toolchain: Toolchain | None = None
) -> list[Reason]:
    """Every reason why `backend` cannot serve `request` on `target`; empty means it can.

    Args:
        request: what is asked.
        backend: a backend's name.
        target: a target's name, in any spelling that `target_of` knows.
        toolchain: versions that known defects depend on. What is left out counts as unknown, and a defect
            whose window asks for it then applies.
    """
    entry = ROWS.get((request.op, backend))
    if entry is None:
        return [Reason("row", f"backend {backend!r} has no implementation of {request.op}")]
    name = target if target in TARGETS else target_of(target)
    found = _row_reasons(entry, name)
    for field, predicate in _CHECKS[request.op, backend]:
        value = getattr(request, field)
        if not predicate.holds(value, request):
            text = f"{field} is {shown(value)}; accepted: {told(predicate, request)}"
            found.append(Reason(field, text, entry.source))
    if entry.needs:
        found += _feature_reasons(entry, request, name)
    defects = DEFECTS.get((request.op, backend))
    if defects:
        found += _defect_reasons(defects, request, name, toolchain or _UNKNOWN_TOOLCHAIN)
    return found


def partial_state_reasons(op: Op, backend: str) -> list[Reason]:
    """Why `backend` cannot merge a caller's partial state into the result of `op`; empty means it can.

    A state is given to a run, so no request tells of it: whoever runs a plan asks.
    """
    entry = ROWS.get((op, backend))
    if entry is None or entry.partial_state:
        return []
    text = "partial_state is given; accepted: none, as results are rounded before a state could be merged in"
    return [Reason("partial_state", text, entry.source)]


def _checks(accepts: Accepts) -> tuple[Check, ...]:
    """Fields that can refuse at all, so that the gate does not ask the others."""
    pairs = ((field.name, getattr(accepts, field.name)) for field in fields(accepts))
    return tuple((name, predicate) for name, predicate in pairs if predicate is not ANY)


_CHECKS: dict[tuple[Op, str], tuple[Check, ...]] = {
    key: _checks(entry.accepts) for key, entry in ROWS.items()
}


_LENGTHS = ("max_qo_len", "max_kv_len")


@functools.cache
def ignores_lengths(op: Op, backend: str) -> bool:
    """Whether `reasons` for these two are the same for any lengths, as long as the table does not change.

    Known defects may depend on lengths and on settings, so a row that has one does not count.
    """
    entry = ROWS[op, backend]
    asked = [(name, str(predicate)) for name, predicate in _CHECKS[op, backend]]
    asked += [(need.field, str(need.predicate)) for need in entry.needs]
    told = any(length in field or length in text for field, text in asked for length in _LENGTHS)
    return not told and (op, backend) not in DEFECTS


def _row_reasons(entry: Row, target: str) -> list[Reason]:
    found = []
    if entry.status is Status.PLANNED:
        found.append(Reason("planned", f"{entry.op} on backend {entry.backend!r} is planned, not built"))
    if not entry.targets.holds(target, None):
        found.append(Reason("target", f"target is {target}; accepted: {entry.targets}", entry.source))
    return found


def _feature_reasons(entry: Row, request: Request, target: str) -> Iterator[Reason]:
    facts = TARGETS.get(target)
    for need in entry.needs:
        if facts is None or not need.predicate.holds(getattr(request, need.field), request):
            continue  # an unknown target is refused by the row's list of targets
        has = facts.fact(need.feature)
        if has.level in (Level.ABSENT, Level.UNKNOWN):
            asked = shown(getattr(request, need.field))
            text = f"{need.field} {asked} needs {need.feature}: {has.level} on {target}"
            yield Reason("feature", text, has.source)


def _defect_reasons(
    defects: Sequence[Defect], request: Request, target: str, toolchain: Toolchain
) -> Iterator[Reason]:
    for defect in defects:
        if target not in defect.targets or not defect.hits(request) or not defect.in_window(toolchain):
            continue
        if setting := allows_known_bad(defect.id):
            _warn_once(defect, setting)
        else:
            text = f"known defect {defect.id}: {defect.detail} (applies to {defect.scope()}; {toolchain})"
            yield Reason("defect", text, defect.source)


def _warn_once(defect: Defect, setting: str) -> None:
    if defect.id not in _warned:
        _warned.add(defect.id)
        warnings.warn(
            f"{setting} passes over defect {defect.id}: {defect.detail} ({defect.source})",
            KnownBadWarning,
            stacklevel=4,
        )

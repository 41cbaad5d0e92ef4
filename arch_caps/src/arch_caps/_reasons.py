"""The gate: compare a request with a row and say every reason why not. Empty means yes; unknown never does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from arch_caps._request import Request
from arch_caps._row import Accepts, Row
from arch_caps._table import ROWS
from arch_caps._target import target_of
from arch_caps._types import Status
from arch_caps._versions import Toolchain

FIELDS = tuple(f.name for f in fields(Accepts))


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a backend refuses a request: what was asked, and what would have been accepted."""

    code: str  # the request's field, or "row", "target", "planned", "defect", "feature"
    text: str
    source: str = ""  # where the limit is documented

    def __str__(self) -> str:
        return f"{self.text} [{self.source}]" if self.source else self.text


class ArchCapabilityError(ValueError, RuntimeError):
    """No backend accepts the request. Lists, for each backend tried, every reason.

    Both bases are there so that code that expects either of them keeps working.
    """

    def __init__(self, request: Request, refusals: Mapping[str, Sequence[Reason]]) -> None:
        self.request = request
        self.refusals = {backend: tuple(reasons) for backend, reasons in refusals.items()}
        super().__init__(self._message())

    def __reduce__(self) -> tuple[type[ArchCapabilityError], tuple[Request, Mapping[str, Sequence[Reason]]]]:
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
    """Every reason why `backend` cannot serve `request` on `target`; empty means it can."""
    entry = ROWS.get((request.op, backend))
    if entry is None:
        return [Reason("row", f"backend {backend!r} does not implement {request.op}")]
    return [*_row_reasons(entry, target), *_field_reasons(entry, request)]


def _row_reasons(entry: Row, target: str) -> list[Reason]:
    found = []
    if entry.status is Status.PLANNED:
        found.append(Reason("planned", f"{entry.backend} is planned for {entry.op}, not built yet"))
    name = target_of(target)
    if not entry.targets.holds(name, None):
        found.append(Reason("target", f"target {name} is not one of: {entry.targets}"))
    return found


def _field_reasons(entry: Row, request: Request) -> list[Reason]:
    found = []
    for field in FIELDS:
        predicate, value = getattr(entry.accepts, field), getattr(request, field)
        if not predicate.holds(value, request):
            found.append(Reason(field, f"{field} is {value}; accepted: {predicate}"))
    return found

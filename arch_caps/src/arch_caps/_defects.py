"""`Defect`: a known-bad mix of target, toolchain and request, refused while its windows are open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

from arch_caps._predicate import PREDICATES, Predicate
from arch_caps._request import Request
from arch_caps._types import Op
from arch_caps._versions import Toolchain, Window

LENGTHS = frozenset({"max_qo_len", "max_kv_len"})  # a plan may not know them: None may then be any length
_FIELDS = frozenset(field.name for field in fields(Request)) | {"group_size"}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One defect. It applies when the target, every given window and every predicate match.

    An unknown version is inside every window, and an unknown length matches every predicate: it refuses.
    """

    id: str
    backend: str
    ops: tuple[Op, ...]
    targets: tuple[str, ...]
    when: tuple[tuple[str, Predicate], ...]  # (field of the request, predicate); all must hold
    detail: str
    source: str
    rocm: Window | None = None
    aiter: Window | None = None
    compiler: Window | None = None

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise ValueError(f"defect {self.id!r}: " + "; ".join(problems))

    def hits(self, request: Request) -> bool:
        """True when the request is one that the defect spoils, or may be."""
        return all(_may_hold(field, predicate, request) for field, predicate in self.when)

    def in_window(self, toolchain: Toolchain) -> bool:
        """True when each given window contains the toolchain's version; an unknown version is contained."""
        return all(window.contains(getattr(toolchain, axis)) for axis, window in self.windows())

    def windows(self) -> list[tuple[str, Window]]:
        """The windows that are given, with the name of their axis."""
        axes = (("rocm", self.rocm), ("aiter", self.aiter), ("compiler", self.compiler))
        return [(axis, window) for axis, window in axes if window is not None]

    def scope(self) -> str:
        """Versions and requests that are hit, in words."""
        versions = [f"{axis} {window}" for axis, window in self.windows()] or ["all versions"]
        requests = [f"{field}: {predicate}" for field, predicate in self.when] or ["every request"]
        return ", ".join(versions) + ", " + ", ".join(requests)


def _may_hold(field: str, predicate: Predicate, request: Request) -> bool:
    value = getattr(request, field)
    return (value is None and field in LENGTHS) or predicate.holds(value, request)


def _problems(defect: Defect) -> Iterator[str]:
    if not _ID.match(defect.id):
        yield "id is not in lower case with hyphens"
    for name in ("backend", "ops", "targets", "detail", "source"):
        if not getattr(defect, name):
            yield f"{name} is empty"
    for field, predicate in defect.when:
        if field not in _FIELDS:
            yield f"{field!r} is no field of a request"
        if not isinstance(predicate, PREDICATES):
            yield f"{field}: {predicate!r} is no predicate"

"""`Defect`: a known-bad combination of target, toolchain and request, refused until its window is closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arch_caps._predicate import Predicate
from arch_caps._request import Request
from arch_caps._types import Op
from arch_caps._versions import Toolchain, Window

LENGTHS = frozenset({"max_qo_len", "max_kv_len"})  # fields that a plan may not know: None there means any


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One defect. It applies when the target, every given window and every predicate match."""

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

    def hits(self, request: Request) -> bool:
        """True when the request is one that the defect spoils, or may be."""
        return all(_may_hold(field, predicate, request) for field, predicate in self.when)

    def in_window(self, toolchain: Toolchain) -> bool:
        """True when each given window contains the toolchain's version; an unknown version is contained."""
        return all(window.contains(version) for window, version in self._axes(toolchain))

    def _axes(self, toolchain: Toolchain) -> list[tuple[Window, str | None]]:
        pairs = (
            (self.rocm, toolchain.rocm),
            (self.aiter, toolchain.aiter),
            (self.compiler, toolchain.compiler),
        )
        return [(window, version) for window, version in pairs if window is not None]


def _may_hold(field: str, predicate: Predicate, request: Request) -> bool:
    value = getattr(request, field)
    return (value is None and field in LENGTHS) or predicate.holds(value, request)

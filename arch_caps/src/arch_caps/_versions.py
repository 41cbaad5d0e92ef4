"""Toolchain versions and half-open windows over them. A version that cannot be read counts as unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Versions of what defects depend on; None means not known, and a defect that asks for it then applies."""

    rocm: str | None = None
    aiter: str | None = None
    compiler: str | None = None  # clang's version


def parse_version(text: str | None) -> tuple[int, ...] | None:
    """`"7.2.1"` -> (7, 2, 1), without trailing zeros or local suffix; None when there is no number to read."""
    match = _NUMBERS.match(text.strip().removeprefix("v")) if text else None
    if match is None:
        return None
    numbers = [int(part) for part in match.group().split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Versions from `start` (inclusive) to `end` (exclusive); None leaves that side open."""

    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        bounds = [b for b in (self.start, self.end) if b is not None]
        if not bounds or any(parse_version(b) is None for b in bounds):
            raise ValueError(f"window [{self.start}, {self.end}) has no readable bound")
        if len(bounds) == 2 and not self.contains(self.start):
            raise ValueError(f"window {self} is empty")

    def contains(self, version: str | None) -> bool:
        """True when the version is inside, or is not known (fail closed)."""
        number = parse_version(version)
        if number is None:
            return True
        start, end = parse_version(self.start), parse_version(self.end)
        return (start is None or number >= start) and (end is None or number < end)

    def __str__(self) -> str:
        start = "(-inf" if self.start is None else f"[{self.start}"
        return f"{start}, {'+inf' if self.end is None else self.end})"

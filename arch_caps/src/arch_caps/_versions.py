"""Toolchain versions and half-open windows over them. A version that cannot be read counts as unknown."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TypeAlias

# (release numbers, stage): stage is -1 before the release (dev, a, b, rc), 0 at it, 1 + n for post-release n.
Version: TypeAlias = tuple[tuple[int, ...], int]

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)[._-]?(?:(post)(\d*)|(dev|a|b|rc)\d*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Versions that defects depend on; None means not known, and a defect that asks for it then applies."""

    rocm: str | None = None
    aiter: str | None = None
    compiler: str | None = None  # clang's version

    def __str__(self) -> str:
        versions = (("rocm", self.rocm), ("aiter", self.aiter), ("compiler", self.compiler))
        return "here: " + ", ".join(f"{name} {version or 'unknown'}" for name, version in versions)


@functools.lru_cache(maxsize=256)
def parse_version(text: str | None) -> Version | None:
    """`"7.2.1-43"` -> ((7, 2, 1), 0); None when there is no number to read.

    Trailing zeros and anything after the release and its stage (a local suffix, a build number) are dropped.
    """
    match = _VERSION.match(text.strip()) if text else None
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    post = 1 + int(match[3] or 0) if match[2] else 0
    return tuple(numbers), -1 if match[4] else post


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Versions from `start` (inclusive) to `end` (exclusive); None leaves that side open."""

    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        bounds = [bound for bound in (self.start, self.end) if bound is not None]
        if not bounds or any(parse_version(bound) is None for bound in bounds):
            raise ValueError(f"window {self} has no readable bound")
        if len(bounds) == 2 and not self.contains(self.start):
            raise ValueError(f"window {self} is empty")

    def contains(self, version: str | None) -> bool:
        """True when the version is inside, or is not known (fail closed)."""
        number = parse_version(version)
        if number is None:
            return True
        release, stage = number
        start, end = parse_version(self.start), parse_version(self.end)
        # A pre-release of the first bad version counts as bad, one of the first good version does too.
        return (start is None or (release, max(stage, 0)) >= start) and (end is None or number < end)

    def __str__(self) -> str:
        start = "(-inf" if self.start is None else f"[{self.start}"
        return f"{start}, {'+inf' if self.end is None else self.end})"

"""Predicates over a request's fields, as data: evaluated, printed and compared; no function is stored.

Rows say with them what a backend accepts, defects say with them which requests are hit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, get_args

from arch_caps._request import Request


@dataclass(frozen=True, slots=True)
class Anything:
    """Holds for every value."""

    def holds(self, value: object, request: Request | None) -> bool:
        """Always true."""
        return True

    def __str__(self) -> str:
        return "any"


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """Holds for the listed values alone."""

    values: tuple[object, ...]

    def __init__(self, *values: object) -> None:
        object.__setattr__(self, "values", values)

    def holds(self, value: object, request: Request | None) -> bool:
        """True when the value is listed."""
        return value in self.values

    def __str__(self) -> str:
        return ", ".join(shown(v) for v in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Holds for numbers from `min` to `max`, both inclusive, above `above`, that `multiple_of` divides."""

    min: float | None = None
    max: float | None = None
    above: float | None = None
    multiple_of: int | None = None

    def holds(self, value: object, request: Request | None) -> bool:
        """True when the number is inside the range; never for a missing number."""
        return (
            isinstance(value, int | float)
            and (self.min is None or value >= self.min)
            and (self.max is None or value <= self.max)
            and (self.above is None or value > self.above)
            and (self.multiple_of is None or value % self.multiple_of == 0)
        )

    def __str__(self) -> str:
        parts = [] if self.multiple_of is None else [f"multiples of {self.multiple_of}"]
        if self.min is not None:
            parts.append(f"at least {self.min}" if self.max is None else f"from {self.min} to {self.max}")
        elif self.max is not None:
            parts.append(f"up to {self.max}")
        if self.above is not None:
            parts.append(f"above {self.above}")
        return " ".join(parts) or "any number"


@dataclass(frozen=True, slots=True)
class SameAs:
    """Holds when the value equals another field of the same request."""

    field: str

    def holds(self, value: object, request: Request | None) -> bool:
        """True when both fields are equal."""
        return bool(value == getattr(request, self.field))

    def __str__(self) -> str:
        return f"the same as {self.field}"


@dataclass(frozen=True, slots=True, init=False)
class AllOf:
    """Holds when every part holds."""

    parts: tuple[Predicate, ...]

    def __init__(self, *parts: Predicate) -> None:
        object.__setattr__(self, "parts", parts)

    def holds(self, value: object, request: Request | None) -> bool:
        """True when no part fails."""
        return all(part.holds(value, request) for part in self.parts)

    def __str__(self) -> str:
        return " and ".join(str(part) for part in self.parts)


@dataclass(frozen=True, slots=True, init=False)
class AnyOf:
    """Holds when at least one part holds."""

    parts: tuple[Predicate, ...]

    def __init__(self, *parts: Predicate) -> None:
        object.__setattr__(self, "parts", parts)

    def holds(self, value: object, request: Request | None) -> bool:
        """True when some part holds."""
        return any(part.holds(value, request) for part in self.parts)

    def __str__(self) -> str:
        return ", or ".join(str(part) for part in self.parts)


Predicate: TypeAlias = Anything | OneOf | Range | SameAs | AllOf | AnyOf
PREDICATES = get_args(Predicate)
ANY = Anything()


def shown(value: object) -> str:
    """A value as a sentence shows it."""
    if value is None:
        return "not set"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def told(predicate: Predicate, request: Request) -> str:
    """The predicate in words, with the value of the other field where it refers to one."""
    if isinstance(predicate, SameAs):
        return f"{predicate}, {shown(getattr(request, predicate.field))}"
    if isinstance(predicate, AllOf | AnyOf):
        joint = " and " if isinstance(predicate, AllOf) else ", or "
        return joint.join(told(part, request) for part in predicate.parts)
    return str(predicate)

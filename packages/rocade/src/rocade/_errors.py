"""The exceptions users can catch, and the one wording of "this argument is malformed"."""

from __future__ import annotations

from arch_caps import ArchCapabilityError
from rocade._refused import RefusedError

__all__ = ["ArchCapabilityError", "NotPlannedError", "RefusedError", "invalid"]


class NotPlannedError(RuntimeError):
    """A wrapper was run before `plan()`."""


def invalid(name: str, given: object, expected: str) -> ValueError:
    """The error for malformed input: which argument, what was given, what was expected."""
    return ValueError(f"{name}: got {given}, expected {expected}")

"""What the bootstrap raises."""

from __future__ import annotations

from rocade_kernels.aiter.errors import AiterError


class BootstrapError(AiterError):
    """A library of AITER is not there, could not be built in time, or is wrong. The text says what to do."""


class ChildError(BootstrapError):
    """The program that builds or checks a library failed."""


class CrashError(ChildError):
    """A signal that no one sent ended it: the library, the driver or a compiler crashed."""

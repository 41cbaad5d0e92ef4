"""What can go wrong between a call and AITER. All are `AiterError`."""

from __future__ import annotations


class AiterError(RuntimeError):
    """AITER cannot serve a call."""


class UnknownVersionError(AiterError):
    """The argument layout of the installed AITER is not known, so no call can be made."""


class LibraryMissingError(AiterError):
    """No folder holds the library. The text is a recipe: the file, the folders searched, the Python call."""


class LibraryError(AiterError):
    """A library is there and cannot be used: damaged, of another kind, open to others, without the symbol."""


class NoKernelError(AiterError):
    """The library has no kernel for the call. Nothing was computed; the outputs are as they were."""


class CallError(AiterError):
    """The call failed inside AITER, or cannot be expressed in its arguments. The outputs mean nothing."""

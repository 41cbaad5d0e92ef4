"""Backend `aiter_ck`: AITER's own libraries, found or built by `bootstrap`, and called by a C++ loader."""

from rocade.backends._base import Backend
from rocade.backends.aiter.ck._backend import CkBackend

BACKEND: Backend = CkBackend()

__all__ = ["BACKEND"]

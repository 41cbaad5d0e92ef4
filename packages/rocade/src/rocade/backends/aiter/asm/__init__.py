"""Backend `aiter_asm`: AITER's prebuilt code objects, launched by our runtime; none of AITER is imported."""

from rocade.backends._base import Backend
from rocade.backends.aiter.asm._backend import AsmBackend

BACKEND: Backend = AsmBackend()

__all__ = ["BACKEND"]

"""The fast backend on a CPU: native kernels over one work list, whatever the levels, rows and masks are."""

from rocade.backends._base import Backend
from rocade.backends.cpu._backend import CpuBackend

BACKEND: Backend = CpuBackend()

__all__ = ["BACKEND"]

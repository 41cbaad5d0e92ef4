"""Our own GPU kernels, on AMD and NVIDIA devices and, inside `rocade.emulate`, in the emulator."""

from rocade.backends._base import Backend
from rocade.backends.hip._backend import HipBackend

BACKEND: Backend = HipBackend()

__all__ = ["BACKEND"]

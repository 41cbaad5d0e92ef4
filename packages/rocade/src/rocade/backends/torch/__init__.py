"""The plain backend: every request, on any device that PyTorch has. The last resort: clear before fast."""

from rocade.backends._base import Backend
from rocade.backends.torch._backend import TorchBackend

BACKEND: Backend = TorchBackend()

__all__ = ["BACKEND"]

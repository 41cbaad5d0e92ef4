"""The fast backend on a CPU: native kernels over one work list, whatever the levels, rows and masks are.

Long queries run on the library's own packed tiles: on one Zen 4 core these took 0.24 to 0.88 of the time of
PyTorch's fused attention (fp16 to fp32, 128 to 2048 rows), so no call alternates between two thread pools.
"""

from rocade.backends._base import Backend
from rocade.backends.cpu._backend import CpuBackend

BACKEND: Backend = CpuBackend()

__all__ = ["BACKEND"]

"""The structs of replay/rocade_replay.h as packed bytes: fields of 8 bytes, in the header's order.

Apart from those of the CPU kernels, so that an edit here leaves those kernels' evidence fresh.
"""

from __future__ import annotations

from struct import Struct

LAUNCH = Struct("@14q")
QUEUE = Struct("@9q")

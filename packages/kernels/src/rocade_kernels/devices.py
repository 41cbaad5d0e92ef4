"""`Device`: facts that say how many waves of a kernel a GPU holds. Those of each GPU are in `_devices.py`."""

from __future__ import annotations

from typing import NamedTuple


class Device(NamedTuple):
    """Facts of one compute unit, copied from arch_caps, which names their sources."""

    wave_size: int
    simds: int
    lds_bytes: int
    vector_registers: int  # per lane, for all waves of a SIMD together
    vector_granule: int
    waves_per_simd: int

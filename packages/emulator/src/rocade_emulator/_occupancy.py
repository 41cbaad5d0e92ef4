"""How many waves of a kernel fit onto a compute unit (CU), and what keeps more from fitting."""

from __future__ import annotations

from dataclasses import dataclass

from rocade_emulator._kernarg import Shape
from rocade_emulator._metadata import Kernel
from rocade_emulator._targets import (
    MAX_GROUPS,
    MAX_WAVES,
    SCALAR_REGISTERS,
    SIMDS,
    VECTOR_GRANULE,
    VECTOR_REGISTERS,
    WAVE_LANES,
    Target,
)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Workgroups and waves in residence. `limits`: how many workgroups each resource has room for."""

    waves_per_group: int
    groups_per_cu: int
    limits: dict[str, int]

    @property
    def waves_per_simd(self) -> float:
        """Waves in residence on one SIMD, on average over the four of a CU."""
        return self.groups_per_cu * self.waves_per_group / SIMDS

    @property
    def limited_by(self) -> str:
        """The resource that is used up first."""
        return min(self.limits, key=lambda name: self.limits[name])


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _groups_for(waves_per_simd: int, waves_per_group: int) -> int:
    """Workgroups whose waves fit, when the waves of a workgroup spread evenly over the SIMDs."""
    return waves_per_simd * SIMDS // waves_per_group


def occupancy(target: Target, kernel: Kernel, shape: Shape) -> Occupancy:
    """What fits onto one CU by registers, LDS, wave slots and workgroup slots."""
    waves = -(-(shape.block[0] * shape.block[1] * shape.block[2]) // WAVE_LANES)
    vector = VECTOR_REGISTERS // max(_round_up(kernel.vgprs, VECTOR_GRANULE), VECTOR_GRANULE)
    scalar = SCALAR_REGISTERS // kernel.sgprs
    lds = _round_up(kernel.lds_bytes + shape.dynamic_lds, target.lds_granule)
    limits = {
        "vector registers": _groups_for(vector, waves),
        "scalar registers": _groups_for(scalar, waves),
        "wave slots": _groups_for(MAX_WAVES, waves),
    }
    if lds:
        limits["LDS"] = target.lds_bytes // lds
    if waves > 1:
        limits["workgroup slots"] = MAX_GROUPS
    return Occupancy(waves, min(limits.values()), limits)

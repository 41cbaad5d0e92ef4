"""A lower bound on a kernel's time from what it issues if all overlaps: no latency, no dependence, no caches.

For each unit of a CU, `busy` is the clocks that the launch keeps it at work, the work being spread evenly
over all CUs of the GPU (or over as many as there are workgroups):

    matrix   MFMA cycles / 4           one matrix core in each of 4 SIMDs
    vector   (VALU + transcendental cycles) / 4
    scalar   SALU cycles / 4           each SIMD issues its own scalar instructions
    lds      LDS cycles                one LDS a CU (the bank model)
    l1       cache lines               one a clock from the vector cache
    memory   bytes / (HBM bytes a clock of a CU)    as if nothing came from a cache

The bound is the largest. "MFMA at x % of peak" is matrix / bound: what is left of the matrix cores' peak when
that unit is never idle. The second figure, without overlap inside a SIMD, is matrix / (matrix + vector): the
case of one wave a SIMD, which cannot issue to both at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocade_emulator._result import Counters
from rocade_emulator._targets import LINES_PER_CLOCK, SIMDS, Target


@dataclass(frozen=True, slots=True)
class Bound:
    """Busy clocks of each unit, on one CU."""

    busy: dict[str, float]

    @property
    def unit(self) -> str:
        """The unit with the most to do."""
        return max(self.busy, key=lambda name: self.busy[name])

    @property
    def clocks(self) -> float:
        """The bound."""
        return self.busy[self.unit]

    @property
    def matrix_share(self) -> float:
        """Part of the matrix cores' peak that is reached if all else overlaps, 0 to 1."""
        return self.busy["matrix"] / self.clocks if self.clocks else 0.0

    @property
    def matrix_share_serial(self) -> float:
        """The same when a SIMD never works on matrix and vector instructions at once."""
        serial = self.busy["matrix"] + self.busy["vector"]
        return self.busy["matrix"] / max(serial, self.clocks) if serial else 0.0

    def text(self) -> str:
        """In words."""
        words = f"{self.unit}-bound: {self.clocks:.0f} clocks"
        if self.busy["matrix"]:
            words += (
                f"; MFMA at {self.matrix_share:.0%} of peak if all else overlaps, "
                f"{self.matrix_share_serial:.0%} if matrix and vector do not"
            )
        return words


def bound(target: Target, counters: Counters) -> Bound:
    """The bound of a launch."""
    units = max(1, min(target.compute_units, counters.groups))
    moved = counters.bytes_read + counters.bytes_written
    work = {
        "matrix": counters.mfma_cycles / SIMDS,
        "vector": (counters.valu_cycles + counters.trans_cycles) / SIMDS,
        "scalar": counters.salu_cycles / SIMDS,
        "lds": float(counters.lds_cycles),
        "l1": counters.cache_lines / LINES_PER_CLOCK,
    }
    busy = {name: clocks / units for name, clocks in work.items()}
    # All CUs share the memory, also those that have no workgroup.
    busy["memory"] = moved / (target.memory_bytes_per_clock * target.compute_units)
    return Bound(busy)

"""The GPUs that are emulated: how files name them, and sizes and rates for reports. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Facts about one GPU. Rates are per compute unit (CU) and clock, from the vendor's peak figures.

    `number` is the target's number in the C ABI, `mach` the machine field of an ELF header's flags.
    """

    name: str
    number: int
    mach: int
    lds_bytes: int  # of a CU
    lds_granule: int  # bytes in which LDS is given to a workgroup
    compute_units: int
    clock_mhz: int
    memory_bytes_per_second: float

    @property
    def memory_bytes_per_clock(self) -> float:
        """HBM bytes in one clock for one CU, when all of them load."""
        return self.memory_bytes_per_second / (self.compute_units * self.clock_mhz * 1e6)


# MI300X and MI355X: CU counts, peak engine clocks and HBM bandwidths of AMD's data sheets.
TARGETS = (
    Target("gfx942", 0, 0x4C, 64 << 10, 512, 304, 2100, 5.3e12),
    Target("gfx950", 1, 0x4F, 160 << 10, 1280, 256, 2400, 8.0e12),
)
BY_NAME = {target.name: target for target in TARGETS}
BY_MACH = {target.mach: target for target in TARGETS}

# The same on both.
WAVE_LANES = 64
SIMDS = 4  # of a CU
MAX_WAVES = 8  # of a SIMD
MAX_GROUPS = 16  # of a CU, when they have more than one wave
VECTOR_REGISTERS = 512  # of a SIMD, each of 64 lanes; VGPRs and AGPRs together
VECTOR_GRANULE = 8
SCALAR_REGISTERS = 800  # of a SIMD
CACHE_LINE = 128  # of L1 and L2
LINES_PER_CLOCK = 1  # from a CU's vector cache


def target(name: str) -> Target:
    """The target of this name.

    Raises:
        ValueError: it is not emulated.
    """
    if (found := BY_NAME.get(name)) is None:
        raise ValueError(f"target {name!r} is not emulated; there are {', '.join(BY_NAME)}")
    return found

"""How many waves of a kernel a SIMD holds, by registers, wave slots and local memory."""

from __future__ import annotations

import pytest

from rocade_kernels._devices import DEVICES
from rocade_kernels.build import Resources
from rocade_kernels.build._resources import waves_per_simd


@pytest.mark.parametrize(
    ("vgprs", "lds_bytes", "max_block", "waves"),
    [
        (0, 0, None, 8),
        (64, 0, 256, 8),
        (65, 0, 256, 7),  # blocks of 8: 72 registers
        (128, 0, 256, 4),
        (129, 0, 256, 3),
        (512, 0, 256, 1),
        (64, 16 << 10, 256, 4),  # four workgroups of four waves
        (64, 16 << 10, 512, 8),
        (128, 20 << 10, 256, 3),
        (64, 64 << 10, 64, 0),  # one wave on four SIMDs
    ],
)
def test_waves(vgprs: int, lds_bytes: int, max_block: int | None, waves: int) -> None:
    used = Resources(64, lds_bytes, 0, max_block, vgprs, 0, 32, 0)
    assert waves_per_simd(used, DEVICES["gfx942"]) == waves


def test_more_local_memory_holds_more_workgroups() -> None:
    used = Resources(64, 64 << 10, 0, 256, 64, 0, 32, 0)
    assert [waves_per_simd(used, DEVICES[name]) for name in ("gfx942", "gfx950")] == [1, 2]


def test_ptx_does_not_tell() -> None:
    assert waves_per_simd(Resources(64, 0, 0, 256), DEVICES["sm_90"]) is None

"""Counters that are models, against what the documentation says: LDS phases and banks, issue cycles."""

from __future__ import annotations

import pytest
from tests.emulator import aiter, asm_kernels

TARGETS = ("gfx942", "gfx950")
LANES = range(64)

# Which lanes LDS serves together, as measured on hardware: first lanes of groups of four, for lanes 0 to 31.
MIXED_8 = ((0, 20), (4, 16), (8, 28), (12, 24))
MIXED_16 = ((0, 12, 20, 24), (4, 8, 16, 28))


def mixed(groups: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    return [{half + first + k for first in group for k in range(4)} for half in (0, 32) for group in groups]


def in_order(size: int) -> list[set[int]]:
    return [set(range(first, first + size)) for first in range(0, 64, size)]


# (banks, lanes served together) of each access; writes are alike on both targets.
WRITES = {4: (32, in_order(32)), 8: (32, in_order(16)), 12: (32, in_order(8)), 16: (32, in_order(8))}
READS = {
    "gfx942": {
        4: (32, in_order(32)),
        8: (32, in_order(16)),
        12: (32, mixed(MIXED_8)),
        16: (32, mixed(MIXED_8)),
    },
    "gfx950": {
        4: (64, in_order(64)),
        8: (64, in_order(32)),
        12: (32, mixed(MIXED_8)),
        16: (64, mixed(MIXED_16)),
    },
}
SUFFIX = {4: "b32", 8: "b64", 12: "b96", 16: "b128"}
CASES = [(target, write, size) for target in TARGETS for write in (False, True) for size in (4, 8, 12, 16)]


def body(write: bool, size: int, other: int, distance: int) -> str:
    """Lane 0 accesses LDS at 0 and lane `other` at `distance`; no other lane does."""
    data = f"v[4:{3 + size // 4}]" if size > 4 else "v4"
    access = f"ds_write_{SUFFIX[size]} v1, {data}" if write else f"ds_read_{SUFFIX[size]} {data}, v1"
    return (
        f"v_mov_b32 v1, 0\ns_mov_b32 s2, {distance}\n"
        f"v_cmp_eq_u32 vcc, {other}, v0\nv_mov_b32 v2, s2\nv_cndmask_b32 v1, v1, v2, vcc\n"
        f"v_cmp_eq_u32 s[4:5], 0, v0\ns_or_b64 exec, vcc, s[4:5]\n{access}"
    )


@pytest.mark.parametrize(("target", "write", "size"), CASES)
def test_lanes_conflict_when_they_are_served_together(target: str, write: bool, size: int) -> None:
    """Of lane 0 and each other lane: two clocks for one bank and one group, or for two groups."""
    banks, groups = WRITES[size] if write else READS[target][size]
    together = next(group for group in groups if 0 in group)
    far = 4 * banks
    bodies = {f"lane_{other}": body(write, size, other, far) for other in LANES[1:]}
    bodies |= {f"bank_{other}": body(write, size, other, far // 2) for other in (1, 33)}
    found = asm_kernels.program(target, bodies, asm_kernels.Resources(lds=1024))
    for name in bodies:
        counters = asm_kernels.launch(found, name, "none").counters
        other = int(name.partition("_")[2])
        in_group, conflict = other in together, name.startswith("lane")
        assert counters.lds_ideal_cycles == (1 if in_group else 2), name
        assert counters.lds_cycles - counters.lds_ideal_cycles == (1 if in_group and conflict else 0), name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_hand_written_kernels_have_no_conflicts(target: str, causal: bool) -> None:
    """AITER swizzles what its attention keeps in LDS; a model that sees conflicts there is wrong."""
    inputs = aiter.make(1, (1, 1), (256, 256), 128, causal)
    counters = aiter.launch(target, inputs, checks="none", quantum=64).counters
    assert counters.lds_ideal_cycles > 0
    assert counters.lds_cycles == counters.lds_ideal_cycles


def test_one_address_for_all_lanes_is_one_clock_a_group() -> None:
    read = "v_mov_b32 v1, 0\nds_read_b128 v[4:7], v1"
    for target, clocks in (("gfx942", 8), ("gfx950", 4)):
        found = asm_kernels.program(target, {"k": read}, asm_kernels.Resources(lds=64))
        assert asm_kernels.launch(found, "k", "none").counters.lds_cycles == clocks


@pytest.mark.parametrize(
    ("text", "unit", "gfx942", "gfx950"),
    [
        ("v_exp_f32 v1, v0", "trans_cycles", 16, 8),
        ("v_add_f32 v1, v0, v0", "valu_cycles", 4, 4),
        ("s_add_u32 s2, s0, s1", "salu_cycles", 4, 4),
        ("v_mfma_f64_16x16x4_f64 v[8:15], v[0:1], v[2:3], v[8:15]", "mfma_cycles", 32, 64),
        ("v_mfma_f64_4x4x4_4b_f64 v[8:9], v[0:1], v[2:3], v[8:9]", "mfma_cycles", 16, 16),
        ("v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31]", "mfma_cycles", 32, 32),
    ],
)
def test_issue_cycles(text: str, unit: str, gfx942: int, gfx950: int) -> None:
    for target, cycles in (("gfx942", gfx942), ("gfx950", gfx950)):
        counters = asm_kernels.launch(asm_kernels.program(target, {"k": text}), "k", "none").counters
        assert getattr(counters, unit) == cycles

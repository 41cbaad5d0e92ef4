"""Whole elements dealt to the blocks of compute units, and for how many blocks work is cut."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.planner.lists import FEW, MANY, Level, WorkList, make

from rocade_kernels import _abi


def steps_of_units(made: WorkList, units: int) -> np.ndarray:
    """Steps of keys that each compute unit's blocks visit."""
    steps = np.zeros(units, int)
    for item in made.items:
        keys = made.shape(item.shape).keys
        steps[item.block % units] += item.kv_heads * -(-(item.kv_end - item.kv_begin) // keys)
    return steps


def test_long_and_short_elements_are_dealt_to_the_same_compute_unit() -> None:
    """Causal tiles of one prompt: none is cut, and no unit has more than an average one and a short tile."""
    many = MANY._replace(blocks=264, unit_blocks=2)
    made = make([Level([1024], [1024], 0)], (32, 8), mask=_abi.MASK_CAUSAL, many=many)
    assert made.facts.num_merges == 0
    assert len(made.items) == 32 * 8
    steps = steps_of_units(made, 132)
    assert steps.sum() == 8 * sum(-(-(t + 1) * 32 // 64) for t in range(32))
    assert steps.max() <= steps.mean() + 2
    longest = max(-(-(i.kv_end - i.kv_begin) // 64) for i in made.items)
    assert longest == 16


@pytest.mark.parametrize(("elements", "blocks"), [(256, 264), (512, 264), (100, 100)])
def test_dealt_elements_leave_blocks_out_that_would_only_unbalance(elements: int, blocks: int) -> None:
    few = FEW._replace(blocks=396, unit_blocks=3)
    made = make([Level([1] * elements, [2048] * elements)], (4, 1), few=few, launch_ns=1e6)
    assert made.facts.num_merges == 0
    assert sum(made.facts.grid) == blocks
    steps = steps_of_units(made, 132)
    assert steps.max() - steps.min() <= 32


def test_short_work_is_cut_for_fewer_blocks() -> None:
    few = FEW._replace(blocks=396, unit_blocks=3)
    made = {keys: make([Level([1], [keys])], (32, 8), few=few) for keys in (8192, 8_000_000)}
    assert {keys: sum(m.facts.grid) for keys, m in made.items()} == {8192: 264, 8_000_000: 396}

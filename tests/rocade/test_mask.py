"""The mask's three views of visibility must agree: per row and key, per tile, and per many tiles."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from arch_caps import MaskKind
from rocade._mask import PackedMask, Visibility

CASES = list(product(MaskKind, (-1, 0, 1, 3)))


def seen(rule: Visibility, positions: range, keys: int) -> torch.Tensor:
    """Bool `[rows, keys]`, by the definition."""
    table = torch.ones(len(positions), keys, dtype=torch.bool)
    for row, position in enumerate(positions):
        for key in range(keys):
            late = rule.kind is MaskKind.CAUSAL and key > position
            early = rule.window_left >= 0 and key < position - rule.window_left
            table[row, key] = not (late or early)
    return table


@pytest.mark.parametrize(("kind", "window_left"), CASES)
def test_visible_is_the_definition(kind: MaskKind, window_left: int) -> None:
    rule = Visibility(kind, window_left)
    for first, keys in product((-3, 0, 4), (1, 6)):
        positions = range(first, first + 4)
        got = rule.visible(torch.tensor(positions), torch.arange(keys))
        want = seen(rule, positions, keys)
        assert want.all() if got is None else torch.equal(got, want)


@pytest.mark.parametrize(("kind", "window_left"), CASES)
def test_key_range_is_where_anything_is_visible(kind: MaskKind, window_left: int) -> None:
    rule = Visibility(kind, window_left)
    for first, rows, keys in product(range(-4, 9), (1, 3), (0, 1, 5)):
        last = first + rows - 1
        begin, end = rule.key_range(first, last, keys)
        some = seen(rule, range(first, last + 1), keys).any(0).nonzero()[:, 0].tolist()
        assert list(range(begin, end)) == some
        bounds = torch.tensor([first]), torch.tensor([last]), torch.tensor([keys])
        assert [int(x) for x in rule.key_ranges(*bounds)] == [begin, end]


@pytest.mark.parametrize(("kind", "window_left"), CASES)
def test_hides_none_is_never_wrong(kind: MaskKind, window_left: int) -> None:
    """It may say False without need only for custom masks, whose bits it does not know."""
    rule = Visibility(kind, window_left)
    for first, rows, begin, size in product(range(-2, 6), (1, 3), range(4), (1, 2, 4)):
        last = first + rows - 1
        got = rule.hides_none(first, last, begin, begin + size - 1)
        all_seen = bool(seen(rule, range(first, last + 1), begin + size)[:, begin:].all())
        assert got == (all_seen and kind is not MaskKind.CUSTOM)


def test_lookup_reads_bits_from_the_low_end() -> None:
    mask = PackedMask(torch.tensor([0xFF, 0b00000110, 0x80], dtype=torch.uint8), torch.tensor([0, 1, 3]))
    element = torch.arange(16)
    got = mask.lookup(torch.tensor(1), element)
    assert got.nonzero()[:, 0].tolist() == [1, 2, 15]

"""Requests are cut into blocks that show each row its keys, once, and keep to the limits of the kernels."""

from __future__ import annotations

import pytest
import torch

from arch_caps import DType, MaskKind, Op, Request
from rocade._mask import Visibility
from rocade._problem import Level
from rocade.backends.aiter.asm._cut import Blocks, blocks_of, split

LENS = [(5, 9), (0, 7), (3, 0), (9, 4), (1, 1), (0, 0), (8, 8), (17, 40), (4, 3), (16, 5)]
TILE, MIN_KEYS = 4, 8


def level() -> Level:
    rows, keys = (torch.tensor(column, dtype=torch.int32) for column in zip(*LENS, strict=True))
    return Level(_sums(rows), keys, None, _sums(keys))


def _sums(counts: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)


def request(mask: MaskKind) -> Request:
    return Request(
        op=Op.BATCH_PREFILL_RAGGED,
        q_dtype=DType.BF16,
        kv_dtype=DType.BF16,
        o_dtype=DType.BF16,
        num_qo_heads=1,
        num_kv_heads=1,
        head_dim_qk=128,
        head_dim_vo=128,
        mask=mask,
    )


def shown(parts: dict[bool, Blocks]) -> dict[int, range]:
    """The keys that each row of the batch is shown, as the kernels define it."""
    found: dict[int, range] = {}
    for causal, blocks in parts.items():
        for first_row, rows, first_key, keys in zip(*(field.tolist() for field in blocks), strict=True):
            for row in range(rows):
                end = row + 1 + keys - rows if causal else keys
                assert first_row + row not in found, "a row is computed once"
                found[first_row + row] = range(first_key, first_key + end)
    return found


def expected(mask: MaskKind) -> dict[int, range]:
    found, row, key = {}, 0, 0
    for rows, keys in LENS:
        for at in range(rows):
            position = at + keys - rows
            _, end = Visibility(mask, -1).key_range(position, position, keys)
            if end:
                found[row + at] = range(key, key + end)
        row, key = row + rows, key + keys
    return found


@pytest.mark.parametrize("mask", [MaskKind.NONE, MaskKind.CAUSAL])
def test_each_row_is_shown_its_keys_once(mask: MaskKind) -> None:
    batch = level()
    assert batch.kv_indptr is not None
    parts = split(request(mask), blocks_of(request(mask), batch, batch.kv_indptr), TILE, MIN_KEYS)
    assert shown(parts) == expected(mask)


def test_blocks_keep_to_the_limits_and_the_longest_come_first() -> None:
    batch = level()
    assert batch.kv_indptr is not None
    for mask in (MaskKind.NONE, MaskKind.CAUSAL):
        parts = split(request(mask), blocks_of(request(mask), batch, batch.kv_indptr), TILE, MIN_KEYS)
        for blocks in parts.values():
            assert blocks.rows.ge(1).all()
            assert blocks.keys.ge(1).all()
        assert parts[True].rows.max() <= TILE
        if mask is MaskKind.CAUSAL:
            assert set(parts) == {True}
            assert parts[True].keys.diff().le(0).all()
        else:
            assert parts[True].rows.eq(1).all()
            assert parts[True].keys.max() < MIN_KEYS <= parts[False].keys.min()


def test_keys_may_start_anywhere() -> None:
    """As in a ragged call whose kv_indptr does not begin at 0."""
    batch = level()
    assert batch.kv_indptr is not None
    for mask in (MaskKind.NONE, MaskKind.CAUSAL):
        near, far = (
            shown(split(request(mask), blocks_of(request(mask), batch, indptr), TILE, MIN_KEYS))
            for indptr in (batch.kv_indptr, batch.kv_indptr + 100)
        )
        assert far == {row: range(keys.start + 100, keys.stop + 100) for row, keys in near.items()}

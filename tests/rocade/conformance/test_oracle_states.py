"""The oracle's merges, sums, page writes and packing against hand-worked numbers."""

from __future__ import annotations

import numpy as np
import torch

from rocade.conformance import oracle_states as states

NEG_INF = float("-inf")


def state(*rows: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    v = torch.tensor([[[value]] for value, _ in rows], dtype=torch.float64)
    return v, torch.tensor([[lse] for _, lse in rows], dtype=torch.float64)


def test_merge_weighs_by_powers_of_two() -> None:
    merged = states.merge_state(*state((1.0, 0.0)), *state((5.0, 1.0)))
    assert merged.v.item() == (1.0 * 1 + 5.0 * 2) / 3
    assert merged.s.item() == np.log2(3.0)
    assert merged.v_mass.item() == merged.v.item()


def test_minus_infinity_is_the_identity_even_with_garbage_values() -> None:
    for garbage in (7.0, float("nan"), float("inf")):
        merged = states.merge_state(*state((3.0, -2.0)), *state((garbage, NEG_INF)))
        assert (merged.v.item(), merged.s.item()) == (3.0, -2.0)


def test_two_empty_states_are_an_empty_state() -> None:
    merged = states.merge_state(*state((0.0, NEG_INF)), *state((0.0, NEG_INF)))
    assert (merged.v.item(), merged.s.item()) == (0.0, NEG_INF)


def test_no_index_sets_give_an_empty_state() -> None:
    merged = states.merge_states(torch.zeros(2, 0, 3, 4), torch.zeros(2, 0, 3))
    assert merged.v.eq(0).all()
    assert merged.s.eq(NEG_INF).all()


def test_variable_length_rows_merge_their_own_sets() -> None:
    v, s = state((1.0, 0.0), (9.0, NEG_INF), (5.0, 1.0), (2.0, 4.0))
    merged = states.variable_length_merge_states(v, s, [0, 3, 3, 4])
    assert merged.v.flatten().tolist() == [11 / 3, 0.0, 2.0]
    assert merged.s.flatten().tolist() == [np.log2(3.0), NEG_INF, 4.0]


def test_sums_are_plain_sums() -> None:
    v = torch.tensor([[[[1.0]], [[-4.0]]]])
    assert [t.item() for t in states.attention_sum(v)] == [-3.0, 5.0]
    out, mass = states.variable_length_attention_sum(v[0], [0, 0, 2])
    assert out.flatten().tolist() == [0.0, -3.0]
    assert mass.flatten().tolist() == [0.0, 5.0]


def test_append_writes_the_slot_of_the_position_and_skips_padding() -> None:
    rows = torch.tensor([[[1.0]], [[2.0]], [[3.0]]])
    cache = torch.zeros(4, 2, 1, 1)
    written = states.append(rows, [0, -1, 1], [3, 9, 0], cache, [2, 1, 3], [0, 2, 3])
    assert written.flatten().tolist() == [0, 0, 0, 1, 0, 0, 3, 0]
    assert cache.eq(0).all()


def test_lengths_and_positions() -> None:
    lengths = states.seq_lens([2, 4, 4, 5], [3, 9, 1], 8)
    assert lengths == [11, 0, 1]
    assert states.batch_positions([0, 2, 2, 3], lengths, 5) == [(0, 9), (0, 10), (2, 0), (-1, 0), (-1, 0)]


def test_packing_is_numpys_little_endian() -> None:
    bits = np.random.default_rng(0).random(29) < 0.5
    assert states.pack_bits(bits.tolist()) == np.packbits(bits, bitorder="little").tolist()

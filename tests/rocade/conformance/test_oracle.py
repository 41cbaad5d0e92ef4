"""The oracle against hand-worked numbers, a scalar loop, torch's fp64 attention, and identities."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from rocade.conformance import oracle
from rocade.conformance.oracle import CascadeLevel, Rules
from rocade.conformance.oracle_states import merge_state

NEG_INF = float("-inf")


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def scalar_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: Callable[[int, int], bool],
    logit: Callable[[int, int, int, float], float],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention as a schoolbook loop over Python floats; `logit(h, i, j, dot)` shapes one logit."""
    n, heads, _ = q.shape
    m, kv_heads, dv = v.shape
    out, lse = torch.zeros(n, heads, dv, dtype=torch.float64), torch.zeros(n, heads, dtype=torch.float64)
    for i in range(n):
        for h in range(heads):
            g = h // (heads // kv_heads)
            seen = [j for j in range(m) if visible(i, j)]
            x = {j: logit(h, i, j, sum(a * b for a, b in zip(q[i, h], k[j, g], strict=True))) for j in seen}
            total = sum(math.exp(x[j]) for j in seen)
            lse[i, h] = math.log2(total) if seen else NEG_INF
            for d in range(dv):
                out[i, h, d] = sum(math.exp(x[j]) / total * v[j, g, d] for j in seen)
    return out, lse


def test_one_key_returns_its_value_and_its_logit_in_base_two() -> None:
    q, k, v = torch.tensor([[[3.0, 4.0]]]), torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[7.0, -5.0]]])
    ref = oracle.attend(q, k, v, Rules(scale=0.5))
    assert ref.out.tolist() == [[[7.0, -5.0]]]
    assert ref.lse.item() == pytest.approx(5.5 / math.log(2.0), rel=1e-15)
    assert ref.logit_mass.item() == 5.5


def test_two_equal_keys_average_their_values() -> None:
    q, k = torch.zeros(1, 1, 4), rand(2, 1, 4)
    v = torch.tensor([[[1.0]], [[3.0]]])
    ref = oracle.attend(q, k, v, Rules(scale=1.0))
    assert ref.out.item() == pytest.approx(2.0)
    assert ref.lse.item() == pytest.approx(1.0)


def test_causal_is_bottom_right_aligned() -> None:
    """Two queries on three keys: the first sees two keys, the second sees three."""
    seen = oracle.visible_keys(2, 3, Rules(scale=1.0, causal=True), None)
    assert seen.tolist() == [[True, True, False], [True, True, True]]


def test_causal_with_more_queries_than_keys_leaves_the_first_rows_blind() -> None:
    seen = oracle.visible_keys(3, 1, Rules(scale=1.0, causal=True), None)
    assert seen.tolist() == [[False], [False], [True]]


@pytest.mark.parametrize(
    ("causal", "row"), [(True, [False, True, True, False]), (False, [False, True, True, True])]
)
def test_window_bounds_the_left_and_never_the_right(causal: bool, row: list[bool]) -> None:
    seen = oracle.visible_keys(2, 4, Rules(scale=1.0, causal=causal, window_left=1), None)
    assert seen[0].tolist() == row


def test_window_zero_with_causal_is_the_diagonal() -> None:
    assert oracle.visible_keys(4, 4, Rules(scale=1.0, causal=True, window_left=0), None).equal(
        torch.eye(4, dtype=torch.bool)
    )


def test_custom_mask_replaces_causal_and_keeps_the_window() -> None:
    custom = torch.ones(2, 4, dtype=torch.bool)
    custom[1, 3] = False
    seen = oracle.visible_keys(2, 4, Rules(scale=1.0, causal=True, window_left=1), custom)
    assert seen.tolist() == [[False, True, True, True], [False, False, True, False]]


def test_mask_bits_are_little_endian() -> None:
    seen = oracle.unpack_mask([0xFF, 0b10000001, 0b00000010], 1, 2, 5)
    assert seen.tolist() == [[True, False, False, False, False], [False, False, True, False, True]]


def test_a_row_without_a_visible_key_is_zero_with_lse_minus_infinity() -> None:
    ref = oracle.attend(rand(3, 2, 4), rand(1, 2, 4), rand(1, 2, 4), Rules(scale=1.0, causal=True))
    assert ref.out[:2].eq(0).all()
    assert ref.lse[:2].eq(NEG_INF).all()
    empty = oracle.attend(rand(3, 2, 4), rand(0, 2, 4), rand(0, 2, 6), Rules(scale=1.0))
    assert empty.out.shape == (3, 2, 6)
    assert empty.out.eq(0).all()
    assert empty.lse.eq(NEG_INF).all()


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (3, [2**-4, 2**-8, 2**-2]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
    ],
)
def test_alibi_slopes(heads: int, slopes: list[float]) -> None:
    assert oracle.alibi_slopes(heads) == slopes


def test_rope_turns_each_pair_by_position_times_frequency() -> None:
    x = torch.tensor([[[1.0, 0.0, 0.0, 2.0]]], dtype=torch.float64)
    turned = oracle.rope(x, [3], rope_scale=2.0, rope_theta=100.0)[0, 0]
    slow, slower = 3 / 2.0, 3 / 2.0 * 0.1
    assert turned.tolist() == pytest.approx(
        [math.cos(slow), -2 * math.sin(slower), math.sin(slow), 2 * math.cos(slower)]
    )


def test_rope_depends_on_the_distance_alone() -> None:
    q, k = rand(1, 1, 8), rand(1, 1, 8, seed=1)
    near = (oracle.rope(q, [5], 1.0, 1e4) * oracle.rope(k, [2], 1.0, 1e4)).sum()
    far = (oracle.rope(q, [105], 1.0, 1e4) * oracle.rope(k, [102], 1.0, 1e4)).sum()
    assert near.item() == pytest.approx(far.item())


@pytest.mark.parametrize("cap", [0.0, 1.5])
@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("window", [-1, 0, 2])
def test_equals_the_schoolbook_loop(cap: float, alibi: bool, window: int) -> None:
    q, k, v = rand(3, 4, 6), rand(5, 2, 6, seed=1), rand(5, 2, 3, seed=2)
    slopes = [2**-2, 2**-4, 2**-6, 2**-8]

    def logit(h: int, i: int, j: int, dot: float) -> float:
        x = 0.7 * float(dot) + (slopes[h] * (j - (i + 2)) if alibi else 0.0)
        return cap * math.tanh(x / cap) if cap else x

    def visible(i: int, j: int) -> bool:
        return j <= i + 2 and (window < 0 or j >= i + 2 - window)

    out, lse = scalar_attention(q, k, v, visible, logit)
    encoding = "ALIBI" if alibi else "NONE"
    rules = Rules(scale=0.7, causal=True, window_left=window, soft_cap=cap, pos_encoding=encoding)
    ref = oracle.attend(q, k, v, rules)
    torch.testing.assert_close(ref.out, out, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(ref.lse, lse, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_equals_torch_attention_in_fp64(causal: bool, group: int) -> None:
    q, k, v = rand(6, 2 * group, 16), rand(6, 2, 16, seed=1), rand(6, 2, 24, seed=2)
    ref = oracle.attend(q, k, v, Rules(scale=0.25, causal=causal))
    heads_first = [t.transpose(0, 1)[None] for t in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(
        *heads_first, is_causal=causal, scale=0.25, enable_gqa=True
    )[0].transpose(0, 1)
    torch.testing.assert_close(ref.out, expected, rtol=1e-12, atol=1e-12)


def test_a_window_of_at_least_the_length_is_no_window() -> None:
    q, k, v = rand(4, 2, 8), rand(7, 1, 8, seed=1), rand(7, 1, 8, seed=2)
    wide = oracle.attend(q, k, v, Rules(scale=1.0, causal=True, window_left=7))
    none = oracle.attend(q, k, v, Rules(scale=1.0, causal=True))
    assert wide.out.equal(none.out)
    assert wide.lse.equal(none.lse)


def test_a_causal_custom_mask_is_causal() -> None:
    q, k, v = rand(4, 2, 8), rand(7, 1, 8, seed=1), rand(7, 1, 8, seed=2)
    mask = torch.ones(4, 7, dtype=torch.bool).tril(3)
    assert oracle.attend(q, k, v, Rules(scale=1.0), mask).out.equal(
        oracle.attend(q, k, v, Rules(scale=1.0, causal=True)).out
    )


def test_merging_the_two_halves_of_the_keys_gives_the_whole() -> None:
    q, k, v = rand(4, 6, 8), rand(9, 2, 8, seed=1), rand(9, 2, 8, seed=2)
    rules = Rules(scale=0.4, soft_cap=3.0, v_scale=0.5)
    whole = oracle.attend(q, k, v, rules)
    left, right = oracle.attend(q, k[:4], v[:4], rules), oracle.attend(q, k[4:], v[4:], rules)
    merged = merge_state(left.out, left.lse, right.out, right.lse)
    torch.testing.assert_close(merged.v, whole.out, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(merged.s, whole.lse, rtol=1e-13, atol=1e-13)


def test_the_key_scale_is_part_of_the_scale_and_the_value_scale_multiplies_the_result() -> None:
    q, k, v = rand(2, 2, 8), rand(5, 1, 8, seed=1), rand(5, 1, 8, seed=2)
    scaled = oracle.attend(q, k, v, Rules(scale=0.3 * 0.25, v_scale=0.5))
    by_hand = oracle.attend(q, k * 0.25, v, Rules(scale=0.3))
    torch.testing.assert_close(scaled.out, by_hand.out * 0.5, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(scaled.lse, by_hand.lse, rtol=1e-14, atol=1e-14)


def test_gather_walks_the_page_table() -> None:
    cache = torch.arange(5 * 2, dtype=torch.float64).reshape(5, 2, 1, 1)  # token value = 2 page + slot
    arrays = ([1, 3, 3, 4], [9, 4, 0, 2, 77], [1, 2, 2])
    rows = [oracle.gather_pages(cache, *arrays, b).flatten().tolist() for b in range(3)]
    assert rows == [[8.0, 9.0, 0.0], [], [4.0, 5.0]]


def test_a_batch_is_its_requests_one_after_another() -> None:
    q = rand(5, 2, 8)
    keys, values = (
        [rand(3, 1, 8, seed=1), rand(6, 1, 8, seed=2)],
        [rand(3, 1, 8, seed=3), rand(6, 1, 8, seed=4)],
    )
    rules = Rules(scale=1.0, causal=True)
    ref = oracle.batch(q, [0, 2, 5], keys, values, rules)
    assert ref.out[:2].equal(oracle.attend(q[:2], keys[0], values[0], rules).out)
    assert ref.out[2:].equal(oracle.attend(q[2:], keys[1], values[1], rules).out)


@pytest.mark.parametrize("encoding", ["NONE", "ALIBI", "ROPE_LLAMA"])
def test_cascade_is_attention_over_the_concatenated_levels(encoding: str) -> None:
    q = rand(6, 4, 8)
    shared, pair, own = (
        rand(7, 2, 8, seed=1),
        rand(3, 2, 8, seed=2),
        [rand(n, 2, 8, seed=n) for n in (4, 0, 2)],
    )
    levels = [
        CascadeLevel([0, 6], [shared], [shared + 1]),
        CascadeLevel([0, 4, 6], [pair, pair[:0]], [pair, pair[:0]]),
        CascadeLevel([0, 1, 4, 6], own, own),
    ]
    rules = Rules(scale=0.5, causal=True, window_left=6, pos_encoding=encoding)
    ref = oracle.cascade(q, levels, rules)
    whole_k = [torch.cat((shared, pair, own[0])), torch.cat((shared, pair)), torch.cat((shared, own[2]))]
    whole_v = [
        torch.cat((shared + 1, pair, own[0])),
        torch.cat((shared + 1, pair)),
        torch.cat((shared + 1, own[2])),
    ]
    for b, (first, end) in enumerate([(0, 1), (1, 4), (4, 6)]):
        alone = oracle.attend(q[first:end], whole_k[b], whole_v[b], rules)
        assert ref.out[first:end].equal(alone.out)
        assert ref.lse[first:end].equal(alone.lse)

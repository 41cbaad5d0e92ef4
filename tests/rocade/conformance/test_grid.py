"""The covering arrays cover what they claim, repeat themselves exactly, and every case is a possible call."""

from __future__ import annotations

from itertools import combinations, islice, product

import pytest
import torch

from arch_caps import Op
from rocade.conformance import axes, grid, inputs, state_calls
from rocade.conformance.cases import AttentionCase, StateCase

OPS = list(Op)


def met_pairs(rows: list[grid.Facts]) -> set[grid.Pair]:
    return {pair for row in rows for pair in grid.pairs_of(row)}


def expected_pairs(values: axes.Axes) -> set[grid.Pair]:
    """Every allowed pair, listed without the generator's own helper."""
    return {
        (a, x, b, y)
        for a, b in combinations(sorted(values), 2)
        for x, y in product(values[a], values[b])
        if axes.allowed({a: x, b: y})
    }


@pytest.mark.parametrize("op", OPS)
def test_every_pair_of_values_meets_in_some_case(op: Op) -> None:
    assert met_pairs(list(grid.covering_array(op))) >= expected_pairs(axes.all_axes(op))


@pytest.mark.parametrize("op", OPS)
def test_every_pair_of_core_values_meets_in_a_case_of_core_values_alone(op: Op) -> None:
    core = axes.CORE[op]
    rows = [row for row in grid.covering_array(op) if all(row[name] in core[name] for name in core)]
    assert met_pairs(rows) >= expected_pairs(core)


@pytest.mark.parametrize("op", OPS)
def test_the_array_has_about_three_hundred_different_cases(op: Op) -> None:
    cases = grid.cases(op)
    assert 250 <= len(cases) <= 330
    assert len({repr(case).replace(f"index={case.index}", "") for case in cases}) > 0.6 * len(cases)


@pytest.mark.parametrize("op", OPS)
def test_an_op_that_sums_has_a_case_of_many_equal_terms(op: Op) -> None:
    """Its last one, so that the others keep their indices."""
    *others, last = grid.cases(op)
    sums = op.is_attention or "states" in op or "sum" in op
    assert getattr(last, "terms", "random") == ("equal" if sums else "random")
    assert all(getattr(case, "terms", "random") == "random" for case in others)


def test_equal_terms_are_equal_and_many() -> None:
    case = grid.cases(Op.BATCH_PREFILL_PAGED)[-1]
    assert isinstance(case, AttentionCase)
    given = inputs.build(case)
    (keys,) = given.lens[0].kv
    used = given.pool.v.nhd[given.tables[0].indices].flatten(0, 1)
    assert keys == len(used) == 8192
    assert (used == used[:1]).all()
    assert given.q.shape[0] == 40  # enough to be packed
    states = grid.cases(Op.VARIABLE_LENGTH_MERGE_STATES)[-1]
    assert isinstance(states, StateCase)
    merged = state_calls.states(states, torch.device("cpu"))
    assert merged.counts == [4096]
    assert (merged.v == merged.v[:, :1]).all()
    assert (merged.s == merged.s[:, :1]).all()


def test_a_missing_pair_would_be_noticed() -> None:
    rows = list(grid.covering_array(Op.BATCH_DECODE))
    core = axes.CORE[Op.BATCH_DECODE]
    without = [row for row in rows if not (row["head_dims"] == (80, 80) and row["page_size"] == 3)]
    assert ("head_dims", (80, 80), "page_size", 3) in expected_pairs(core) - met_pairs(without)


def test_the_array_is_the_same_every_time() -> None:
    first = repr(grid.cases(Op.CASCADE))
    grid.covering_array.cache_clear()
    assert repr(grid.cases(Op.CASCADE)) == first


def test_the_axes_hold_the_values_of_the_contract() -> None:
    for op in Op:
        if not op.is_attention:
            continue
        values = axes.CORE[op]
        assert set(values["group_size"]) == {1, 2, 3, 5, 7, 8, 16, 64}
        assert {dim for pair in values["head_dims"] for dim in pair} == {32, 64, 80, 96, 128, 192, 256}
        if "page_size" in values:
            assert set(values["page_size"]) == {1, 3, 16, 64}


def test_the_full_product_has_every_combination_once() -> None:
    facts = axes.full_product(Op.BATCH_PREFILL_PAGED)
    assert len(facts) == 3 * 2 * 4 * 4 * 2 * 8 * 9 * 4
    assert len({tuple(row.items()) for row in facts}) == len(facts)
    case = next(grid.full(Op.BATCH_PREFILL_PAGED))
    assert isinstance(case, AttentionCase)


def test_a_case_is_found_by_its_index_alone() -> None:
    assert grid.find(Op.CASCADE, 7) == grid.cases(Op.CASCADE)[7]
    assert grid.find(Op.CASCADE, grid.FULL_FIRST + 5) == list(islice(grid.full(Op.CASCADE), 6))[5]
    product_size = len(axes.full_product(Op.CASCADE))
    assert grid.find(Op.CASCADE, grid.FULL_FIRST + product_size) is None
    assert grid.find(Op.CASCADE, len(grid.cases(Op.CASCADE))) is None
    assert grid.find(Op.CASCADE, -1) is None

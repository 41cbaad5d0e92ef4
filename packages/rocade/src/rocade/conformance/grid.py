"""Covering arrays: few cases in which every pair of values meets, the same ones on every run.

A greedy one-row-at-a-time generator (AETG): seed a row with a pair not met yet, give each other axis the
value that meets most new pairs, repeat. What is left up to the target goes to new triples of core values.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from functools import cache
from itertools import combinations

from arch_caps import Op
from rocade.conformance.axes import CORE, FULL_AXES, Axes, all_axes, allowed, full_product
from rocade.conformance.cases import AppendCase, AttentionCase, Case, StateCase
from rocade.conformance.lengths import VERY_LONG

CASES_PER_OP = 300
NARROW_FIRST = 50_000  # cases of `narrow` count from here, and differ from backend to backend
FULL_FIRST = 100_000  # cases of the full product count from here, so that an index names one case only
Facts = dict[str, Hashable]
# Added to the covering array of an op that sums: a long list of equal terms, each rounded the same way.
_EQUAL_KEYS: Facts = {"terms": "equal", "lengths": VERY_LONG, "page_size": 16}
_EQUAL_STATES: Facts = {"terms": "equal", "rows": 1, "sets": 4096, "head_dim": 64}
EQUAL_TERMS: dict[Op, Facts] = {
    **{op: _EQUAL_KEYS for op in CORE if op.is_attention},
    Op.MERGE_STATES: _EQUAL_STATES,
    Op.VARIABLE_LENGTH_MERGE_STATES: _EQUAL_STATES,
    Op.ATTENTION_SUM: _EQUAL_STATES,
    Op.VARIABLE_LENGTH_ATTENTION_SUM: _EQUAL_STATES,
}
Pair = tuple[str, Hashable, str, Hashable]


def pairs_of(facts: Facts) -> Iterator[Pair]:
    """Every pair of values in one row, axes in alphabetic order."""
    for a, b in combinations(sorted(facts), 2):
        yield a, facts[a], b, facts[b]


def all_pairs(axes: Axes) -> list[Pair]:
    """Every pair of values that may stand together."""
    return [
        (a, x, b, y)
        for a, b in combinations(sorted(axes), 2)
        for x in axes[a]
        for y in axes[b]
        if allowed({a: x, b: y})
    ]


def _new_pairs(facts: Facts, axis: str, value: Hashable, missing: dict[Pair, None]) -> int:
    """How many missing pairs `axis = value` would meet in a partly filled row."""
    count = 0
    for other, held in facts.items():
        pair = (axis, value, other, held) if axis < other else (other, held, axis, value)
        count += pair in missing
    return count


def _fill(facts: Facts, axes: Axes, missing: dict[Pair, None], rng: random.Random) -> Facts:
    """Complete a row greedily; ties are broken by chance so that rows differ where they may."""
    rest = [axis for axis in axes if axis not in facts]
    rng.shuffle(rest)
    for axis in rest:
        values = [value for value in axes[axis] if allowed({**facts, axis: value})]
        scores = [_new_pairs(facts, axis, value, missing) for value in values]
        best = max(scores)
        facts[axis] = rng.choice([v for v, score in zip(values, scores, strict=True) if score == best])
    return facts


def cover_pairs(axes: Axes, rows: list[Facts], rng: random.Random) -> list[Facts]:
    """Rows to add to `rows` so that every allowed pair of `axes` is met."""
    missing = dict.fromkeys(all_pairs(axes))
    for row in rows:
        for pair in pairs_of(row):
            missing.pop(pair, None)
    added = []
    while missing:
        a, x, b, y = next(iter(missing))
        row = _fill({a: x, b: y}, axes, missing, rng)
        for pair in pairs_of(row):
            missing.pop(pair, None)
        added.append(row)
    return added


def _triples(facts: Facts) -> set[tuple[Hashable, ...]]:
    held = [(axis, facts[axis]) for axis in FULL_AXES if axis in facts]
    return set(combinations(held, 3))


def cover_triples(axes: Axes, rows: list[Facts], count: int, rng: random.Random) -> list[Facts]:
    """`count` more rows, each the best of a few random ones by the new triples it meets."""
    met = set().union(*map(_triples, rows)) if rows else set()
    added = []
    for _ in range(count):
        tries = [_fill({}, axes, {}, rng) for _ in range(12)]
        best = max(tries, key=lambda row: len(_triples(row) - met))
        met |= _triples(best)
        added.append(best)
    return added


@cache
def covering_array(op: Op) -> tuple[Facts, ...]:
    """Facts of an op's cases in CI: pairs of core values, of all values, core triples, and equal terms."""
    rng = random.Random(f"rocade {op.value}")
    rows = cover_pairs(CORE[op], [], rng)
    rows += cover_pairs(all_axes(op), rows, rng)
    rows += cover_triples(CORE[op], rows, CASES_PER_OP - len(rows), rng)
    return (*rows, *_equal_terms(op))


def _equal_terms(op: Op) -> list[Facts]:
    """The case of `EQUAL_TERMS` with the first value of every other axis, or nothing."""
    facts, axes = EQUAL_TERMS.get(op, {}), CORE[op]
    plain = {axis: values[0] for axis, values in axes.items()}
    return (
        [{**plain, **{name: x for name, x in facts.items() if name in axes or name == "terms"}}]
        if facts
        else []
    )


def case_of(op: Op, index: int, facts: Facts) -> Case:
    """The case of an op with these facts."""
    kind = AttentionCase if op.is_attention else AppendCase if "page_size" in facts else StateCase
    return kind(op=op, index=index, **facts)  # type: ignore[arg-type]


def cases(op: Op) -> list[Case]:
    """The cases of an op in CI, about `CASES_PER_OP`. Their order and values never change between runs."""
    return [case_of(op, index, facts) for index, facts in enumerate(covering_array(op))]


def sample(op: Op, count: int) -> list[Case]:
    """At most `count` of an op's cases in CI, drawn by chance, but the same ones on every run."""
    found = cases(op)
    drawn = random.Random(f"rocade sample {op.value}").sample(range(len(found)), min(count, len(found)))
    return [found[index] for index in sorted(drawn)]


def full(op: Op) -> Iterator[Case]:
    """The full product of the contract's axes; each case has random values of the other axes beside it."""
    for index, facts in enumerate(full_product(op), FULL_FIRST):
        yield _full_case(op, index, facts)


def find(op: Op, index: int) -> Case | None:
    """The one case of this index, from CI's cases or the full product; None when there is none."""
    if index < FULL_FIRST:
        rows = covering_array(op)
        return case_of(op, index, rows[index]) if 0 <= index < len(rows) else None
    product = full_product(op)
    at = index - FULL_FIRST
    return _full_case(op, index, product[at]) if at < len(product) else None


def _full_case(op: Op, index: int, facts: Facts) -> Case:
    """Seeded by its own index, so that one case is made without those before it."""
    rng = random.Random(f"rocade full {op.value} {index}")
    return case_of(op, index, _fill(dict(facts), CORE[op], {}, rng))

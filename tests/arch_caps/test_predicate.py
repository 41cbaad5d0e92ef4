"""Predicates hold, print themselves, and never hold for a number that is missing."""

from __future__ import annotations

import pytest
from tests.arch_caps.helpers import PLAIN, request

from arch_caps import DType
from arch_caps._predicate import ANY, AllOf, AnyOf, OneOf, Predicate, Range, SameAs, shown, told

SAME = SameAs("q_dtype")


@pytest.mark.parametrize(
    ("predicate", "value", "holds"),
    [
        (ANY, None, True),
        (OneOf(1, 2), 2, True),
        (OneOf(1, 2), 3, False),
        (OneOf(None), None, True),
        (OneOf(False), True, False),
        (Range(min=8, max=256, multiple_of=8), 8, True),
        (Range(min=8, max=256, multiple_of=8), 256, True),
        (Range(min=8, max=256, multiple_of=8), 257, False),
        (Range(min=8, max=256, multiple_of=8), 12, False),
        (Range(min=8, max=256, multiple_of=8), 0, False),
        (Range(above=0), 0.0, False),
        (Range(above=0), 1e-9, True),
        (Range(), None, False),
        (Range(max=3), None, False),
        (SAME, DType.BF16, True),
        (SAME, DType.FP16, False),
        (AllOf(Range(min=2), OneOf(1, 2)), 2, True),
        (AllOf(Range(min=2), OneOf(1, 2)), 1, False),
        (AnyOf(SAME, OneOf(DType.FP8_E4M3)), DType.FP8_E4M3, True),
        (AnyOf(SAME, OneOf(DType.FP8_E4M3)), DType.FP16, False),
    ],
    ids=str,
)
def test_holds(predicate: Predicate, value: object, holds: bool) -> None:
    assert predicate.holds(value, PLAIN) is holds


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (ANY, "any"),
        (OneOf(1, 16), "1, 16"),
        (OneOf(None, True, False), "not set, yes, no"),
        (Range(min=8, max=256, multiple_of=8), "multiples of 8 from 8 to 256"),
        (Range(min=1), "at least 1"),
        (Range(max=4), "up to 4"),
        (Range(above=0), "above 0"),
        (Range(multiple_of=16), "multiples of 16"),
        (Range(), "any number"),
        (SAME, "the same as q_dtype"),
        (AnyOf(SAME, OneOf("x")), "the same as q_dtype, or x"),
        (AllOf(Range(min=1), Range(multiple_of=2)), "at least 1 and multiples of 2"),
    ],
    ids=str,
)
def test_print(predicate: Predicate, text: str) -> None:
    assert str(predicate) == text


def test_told_shows_the_other_field() -> None:
    fp16 = request(q_dtype=DType.FP16)
    assert told(SAME, fp16) == "the same as q_dtype, fp16"
    assert told(AnyOf(SAME, OneOf("x")), fp16) == "the same as q_dtype, fp16, or x"
    assert told(AllOf(SAME, ANY), fp16) == "the same as q_dtype, fp16 and any"
    assert told(Range(min=1), fp16) == "at least 1"


def test_predicates_are_values() -> None:
    assert OneOf(1, 2) == OneOf(1, 2) != OneOf(2, 1)
    assert len({Range(min=1), Range(min=1), SameAs("a"), ANY}) == 3


def test_shown() -> None:
    assert [shown(v) for v in (None, True, False, 3, "x")] == ["not set", "yes", "no", "3", "x"]

"""The report compares tokens, tells a tie from an error, and prints medians."""

from __future__ import annotations

from rocade.demo._generate import Answers
from rocade.demo._report import TIE_LOGITS, Difference, Run, differences, equality, memory, timing


def run(
    name: str,
    tokens: list[list[int]],
    gap: float = 1.0,
    attention: tuple[float, ...] = (0.01, 0.02, 0.05),
) -> Run:
    gaps = [[gap] * len(part) for part in tokens]
    answers = Answers(tokens, gaps, step_seconds=[0.1, 0.2, 0.4], attention_seconds=[*attention])
    return Run(name, answers, kv_bytes=2_000_000)


REFERENCE = run("torch", [[1, 2, 3], [4, 5, 6]], attention=(0.05, 0.06, 0.1))


def test_equal_tokens_are_reported_equal() -> None:
    lines, good = equality([run("ours", [[1, 2, 3], [4, 5, 6]])], REFERENCE)
    assert good
    assert lines[0] == "Greedy tokens, 2 requests, 6 tokens"
    assert lines[1].split() == ["ours", "equal", "to", "those", "of", "torch"]


def test_only_the_first_difference_of_a_request_counts() -> None:
    found = differences(run("ours", [[1, 9, 9], [4, 5, 6]], gap=0.5).answers, REFERENCE.answers)
    assert found == [Difference(request=0, step=1, gap=0.5, reference_gap=1.0)]


def test_a_difference_with_a_clear_lead_fails() -> None:
    lines, good = equality([run("ours", [[1, 2, 3], [4, 5, 7]])], REFERENCE)
    assert not good
    assert "1 requests differ from those of torch" in lines[1]
    assert "request 2 parts at token 3" in lines[2]
    assert lines[2].endswith("NOT a tie")


def test_a_tie_needs_both_runs_to_be_undecided() -> None:
    close = TIE_LOGITS / 2
    assert Difference(0, 0, close, close).is_tie
    assert not Difference(0, 0, close, 2 * TIE_LOGITS).is_tie
    assert not Difference(0, 0, 2 * TIE_LOGITS, close).is_tie
    reference = run("torch", [[1]], gap=close)
    lines, good = equality([run("ours", [[2]], gap=close)], reference)
    assert good
    assert lines[2].endswith("a tie within rounding")


def test_times_are_medians_and_so_are_the_ratios_of_each_step_to_the_reference() -> None:
    rows = [line.split() for line in timing([run("ours", [[1], [2]])], REFERENCE)]
    assert rows[0] == ["Decode,", "medians", "of", "3", "steps", "of", "2", "requests"]
    assert rows[2] == ["ours", "20.0", "ms", "3.0x", "200.0", "ms", "10.0"]
    assert rows[3] == ["torch", "60.0", "ms", "1.0x", "200.0", "ms", "10.0"]


def test_memory_gives_both_sizes_and_their_ratio() -> None:
    lines = memory(run("ours", [[1]]), Run("torch", REFERENCE.answers, kv_bytes=10_000_000))
    assert lines[1].endswith(" 2.0 MB")
    assert lines[2].endswith(" 10.0 MB  (5.0x)")

"""The report compares tokens, tells a tie from an error, and prints medians."""

from __future__ import annotations

from rocade.demo._generate import Answers
from rocade.demo._report import Difference, Run, differences, equality, memory, noise, timing


def run(
    name: str,
    tokens: list[list[int]],
    lead: float = 1.0,
    attention: tuple[float, ...] = (0.01, 0.02, 0.05),
) -> Run:
    leads = [[lead] * len(part) for part in tokens]
    answers = Answers(tokens, leads, step_seconds=[0.1, 0.2, 0.4], attention_seconds=[*attention])
    return Run(name, answers, kv_bytes=2_000_000)


TIE = 1e-3  # logits
REFERENCE = run("torch", [[1, 2, 3], [4, 5, 6]], attention=(0.05, 0.06, 0.1))


def test_equal_tokens_are_reported_equal() -> None:
    lines, good = equality([run("ours", [[1, 2, 3], [4, 5, 6]])], REFERENCE, TIE)
    assert good
    assert lines[0].startswith("Greedy tokens, 2 requests, 6 tokens")
    assert " ".join(lines[1].split()) == "ours equal to those of torch; leads within 0"


def test_only_the_first_difference_of_a_request_counts() -> None:
    found = differences(run("ours", [[1, 9, 9], [4, 5, 6]], lead=0.5).answers, REFERENCE.answers)
    assert found == [Difference(request=0, step=1, lead=0.5, reference_lead=1.0)]


def test_a_difference_with_a_clear_lead_fails() -> None:
    lines, good = equality([run("ours", [[1, 2, 3], [4, 5, 7]])], REFERENCE, TIE)
    assert not good
    assert "1 requests differ from those of torch" in lines[1]
    assert "request 2 parts at token 3" in lines[2]
    assert lines[2].endswith("NOT a tie")


def test_a_tie_needs_both_runs_to_be_undecided() -> None:
    close = TIE / 2
    assert Difference(0, 0, close, close).is_tie(TIE)
    assert not Difference(0, 0, close, 2 * TIE).is_tie(TIE)
    assert not Difference(0, 0, 2 * TIE, close).is_tie(TIE)
    reference = run("torch", [[1]], lead=close)
    lines, good = equality([run("ours", [[2]], lead=close)], reference, TIE)
    assert good
    assert lines[2].endswith("a tie within rounding")


def test_noise_is_taken_from_equal_texts_only() -> None:
    ours = run("ours", [[1, 2, 3], [4, 9, 9]]).answers
    ours.leads = [[1.0, 1.25, 0.9], [1.0, 5.0, 5.0]]
    assert noise(ours, REFERENCE.answers) == 0.25
    assert noise(REFERENCE.answers, REFERENCE.answers) == 0


def test_times_are_medians_and_so_are_the_ratios_of_each_step_to_the_reference() -> None:
    rows = [line.split() for line in timing([run("ours", [[1], [2]])], REFERENCE)]
    assert rows[0] == ["Decode,", "medians", "of", "3", "steps", "of", "2", "requests"]
    assert rows[2] == ["ours", "20.0", "ms", "3.0x", "200.0", "ms", "10.0"]
    assert rows[3] == ["torch", "60.0", "ms", "1.0x", "200.0", "ms", "10.0"]


def test_memory_gives_both_sizes_and_their_ratio() -> None:
    lines = memory(run("ours", [[1]]), Run("torch", REFERENCE.answers, kv_bytes=10_000_000))
    assert lines[1].endswith(" 2.0 MB")
    assert lines[2].endswith(" 10.0 MB  (5.0x)")

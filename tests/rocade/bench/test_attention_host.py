"""The bench of what the CPU does for a GPU's calls: it times them all, and judges medians."""

from __future__ import annotations

import pytest

from rocade.bench import _attention_host, cpu
from rocade.bench._report import Report


def test_every_call_is_timed_and_plans_and_runs_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_attention_host, "BATCHES", (3,))
    monkeypatch.setattr(_attention_host, "WARM", 1)
    monkeypatch.setattr(_attention_host, "CALLS", 3)
    report = Report()
    _attention_host.bench_idle(report)
    judged = [floor.case for floor in report.floors]
    assert len(judged) == len(set(judged)) == 6
    limits = (_attention_host.PLAN_FLOOR_US, _attention_host.RUN_FLOOR_US)
    assert {floor.limit for floor in report.floors} == set(limits)
    assert all(floor.value > 0 for floor in report.floors)
    assert sum("single" in str(figure["case"]) for figure in report.figures) == 3


def test_calls_take_turns_and_warm_up_unmeasured() -> None:
    seen: list[str] = []
    spent = _attention_host.measure({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, count=2)
    assert seen == ["a", "b"] * (_attention_host.WARM + 2)
    assert 0 < spent["a"].best <= spent["a"].median


def test_it_is_a_part_of_the_command() -> None:
    assert "launch" in cpu.PARTS

"""The bench of what the CPU does for a GPU's calls: it times them all, and judges medians."""

from __future__ import annotations

import pytest
import torch

from rocade import _single
from rocade.backends import _idle
from rocade.backends.hip._attention import AttentionPlan
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
    singles = {str(figure["case"]): figure for figure in report.figures if "single" in str(figure["case"])}
    assert len(singles) == 6
    assert sum(case.endswith(", planned") for case in singles) == 3


def test_a_single_call_that_is_to_plan_finds_no_plan_and_leaves_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_single, "_local", _single._Local())
    plans: list[object] = []
    init = AttentionPlan.__init__
    monkeypatch.setattr(AttentionPlan, "__init__", lambda *given: plans.append(init(*given)))
    with _idle.idle(_attention_host.TARGET), torch.inference_mode():
        calls = _attention_host._singles(torch.device("cpu"))
        for _ in range(3):
            for call in calls.values():
                call()
    assert len(plans) == 3 + 3 * 3


def test_calls_take_turns_and_warm_up_unmeasured() -> None:
    seen: list[str] = []
    spent = _attention_host.measure({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, count=2)
    assert seen == ["a", "b"] * (_attention_host.WARM + 2)
    assert 0 < spent["a"].best <= spent["a"].median


def test_it_is_a_part_of_the_command() -> None:
    assert "launch" in cpu.PARTS

"""The grid in the emulator: kernels against the oracle on both targets, and what makes a case fail there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from arch_caps import ROWS, EvidenceKind, Op
from rocade import cascade
from rocade.backends.hip import _states
from rocade.conformance import grid, verify, where
from rocade.conformance.runner import Outcome
from rocade_kernels import hip_launch

TARGETS = ("gfx942", "gfx950")
CASES, DRAWN = 8, 120  # run of an op on a target, and among how many they are sought
OPS = [op for (op, backend), row in ROWS.items() if backend == "hip" and row.kernels]
ONE = ["--target", "gfx942", "--on", "emulator", "--op", "merge_state"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", OPS)
def test_kernels_hold_to_the_oracle_under_every_schedule(op: Op, target: str) -> None:
    emulator = where.OnEmulator(target)
    reports = []
    for case in grid.sample(op, DRAWN):
        report = emulator.run(case, "hip")
        if report.outcome is not Outcome.REFUSED:
            reports.append(report)
        if len(reports) == CASES:
            break
    assert [str(report) for report in reports if report.outcome is Outcome.FAILED] == []
    assert len(reports) == CASES
    assert any(report.launches == 3 for report in reports)


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", OPS)
def test_kernels_hold_to_the_whole_grid(op: Op, target: str) -> None:
    emulator = where.OnEmulator(target)
    reports = [emulator.run(case, "hip") for case in grid.cases(op)]
    assert [str(report) for report in reports if report.outcome is Outcome.FAILED] == []


def test_a_passing_run_says_how_many_kernels_it_launched(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [str(case.index) for case in grid.cases(Op.MERGE_STATE) if case.rows][:2]  # type: ignore[union-attr]
    assert verify.main([*ONE, "--case", rows[0], "--case", rows[1]]) == 0
    said = capsys.readouterr()
    assert "merge_state hip 2 0 0 " in " ".join(said.out.split())
    assert "2 passed, 0 refused, 0 failed, 6 launches" in said.err


def test_a_finding_fails_a_case_with_a_right_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true, dense = hip_launch.merge_state, hip_launch.merge_state_dense
    monkeypatch.setattr(_states, "_pair_tiles", _states._pair_tiles.__wrapped__)
    monkeypatch.setattr(_states, "_dense_pair", _states._dense_pair.__wrapped__)
    monkeypatch.setattr(hip_launch, "merge_state", lambda rows, *given: true(rows + 1, *given))
    monkeypatch.setattr(hip_launch, "merge_state_dense", lambda n, *given, **kw: dense(n + 1, *given, **kw))
    index = next(str(c.index) for c in grid.cases(Op.MERGE_STATE) if c.rows == 7)  # type: ignore[union-attr]
    assert verify.main([*ONE, "--case", index]) == 1
    said = capsys.readouterr().out
    assert "out of bounds" in said
    assert "schedule round_robin" in said
    assert (
        f"rocade verify --target gfx942 --on emulator --op merge_state --backend hip --case {index}" in said
    )


def test_a_wrong_result_names_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    true = cascade.merge_state

    def faulty(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        v, s = true(*args, **kwargs)
        return v, s * 1.001

    monkeypatch.setattr(cascade, "merge_state", faulty)
    case = next(c for c in grid.cases(Op.MERGE_STATE) if c.rows and c.empties == "none")  # type: ignore[union-attr]
    report = where.OnEmulator("gfx942").run(case, "hip")
    assert report.outcome is Outcome.FAILED
    assert "s is " in report.detail
    assert "(schedule round_robin" in report.detail


def test_a_run_that_launched_nothing_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = next(str(c.index) for c in grid.cases(Op.MERGE_STATE) if not c.rows)  # type: ignore[union-attr]
    assert verify.main([*ONE, "--case", empty]) == 1
    assert "no kernel was launched by merge_state on hip" in capsys.readouterr().err


def test_records_of_the_emulator_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: dict[str, Any] = {}
    monkeypatch.setattr(verify, "ALL_OPS", (Op.ATTENTION_SUM,))
    monkeypatch.setattr(grid, "cases", lambda op: SOME)
    monkeypatch.setattr(verify, "gather_evidence", lambda **facts: written.update(facts) or [])
    file = tmp_path / "sent.json"
    assert verify.main(["--target", "gfx942", "--on", "emulator", "--record", "--out", str(file)]) == 0
    assert written["kind"] is EvidenceKind.EMULATED
    assert written["cases"] == {(Op.ATTENTION_SUM, "hip"): len(SOME)}
    assert written["on"].startswith("emulator on ")
    assert set(written["toolchain"]) == {"rocade", "torch", "python", "rocade_emulator", "gpu code"}


SOME = grid.sample(Op.ATTENTION_SUM, 4)


def test_without_being_told_where_a_gpu_that_is_not_here_is_emulated() -> None:
    if not torch.cuda.is_available():
        assert isinstance(where.chosen("gfx942", None), where.OnEmulator)
        with pytest.raises(ValueError, match=r"no device here is sm_90.*target: got 'sm_90'"):
            where.chosen("sm_90", None)
    assert isinstance(where.chosen("cpu", None), where.OnDevice)

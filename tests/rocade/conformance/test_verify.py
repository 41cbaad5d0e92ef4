"""`rocade verify`: exit status, report of a failure, refusals, and what it records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import arch_caps
from arch_caps import Op
from rocade import cascade
from rocade.conformance import grid, runner, verify
from rocade.conformance.runner import Outcome

STATES = ["--op", "merge_state", "--backend", "torch"]


def test_a_passing_run_prints_a_row_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([*STATES, "--case", "3", "--case", "4"]) == 0
    assert "merge_state                     torch          2        0       0" in capsys.readouterr().out


def test_a_wrong_result_fails_and_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = cascade.merge_state

    def faulty(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        v, s = true(*args, **kwargs)
        return v, s * 1.001

    monkeypatch.setattr(cascade, "merge_state", faulty)
    index = next(c.index for c in grid.cases(Op.MERGE_STATE) if c.rows and c.empties == "none")
    assert verify.main([*STATES, "--case", str(index)]) == 1
    said = capsys.readouterr().out
    assert "s is " in said
    assert "StateCase(" in said
    assert f"rocade verify --op merge_state --backend torch --case {index}" in said


def test_an_exception_is_a_failure_with_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(cascade, "merge_states", broken)
    report = runner.run(grid.cases(Op.MERGE_STATES)[0], "torch")
    assert (report.outcome, report.detail) == (Outcome.FAILED, "RuntimeError: no luck")


def test_a_refusal_has_the_tables_words() -> None:
    for case in grid.cases(Op.BATCH_DECODE):
        why = arch_caps.reasons(runner.request_of(case), backend="cpu", target="cpu")
        if why:
            report = runner.run(case, "cpu")
            assert report.outcome is Outcome.REFUSED
            assert report.detail == "; ".join(reason.text for reason in why)
            return


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--target", "gfx942"], "cannot be verified on this machine"),
        (["--backend", "cuda"], "'cuda' does not exist"),
        (["--record", "--case", "1"], "whole record"),
        (["--record", "--op", "cascade"], "whole record"),
        (["--case", "-1"], "no operation asked for has a case -1"),
        (["--case", "300"], "no operation asked for has a case 300"),
        (["--op", "merge_state", "--case", "100000000"], "no operation asked for has a case 100000000"),
    ],
)
def test_a_wrong_command_is_told(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        verify.main(argv)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_record_writes_what_passed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "arch_caps" / "evidence").mkdir(parents=True)
    monkeypatch.setattr(verify, "_checkout", lambda: tmp_path)
    monkeypatch.setattr(verify, "ALL_OPS", (Op.MERGE_STATE,))
    written: dict[str, Any] = {}
    monkeypatch.setattr(verify, "write_evidence", lambda **facts: written.update(facts) or [])
    assert verify.main(["--backend", "torch", "--record", "--on", "a test"]) == 0
    assert written["cases"] == {(Op.MERGE_STATE, "torch"): grid.CASES_PER_OP}
    assert written["target"] == arch_caps.target_of("cpu")
    assert written["root"] == tmp_path
    assert written["on"] == "a test"
    assert set(written["toolchain"]) == {"rocade", "torch", "python"}


def test_nothing_is_recorded_when_a_case_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "arch_caps" / "evidence").mkdir(parents=True)
    monkeypatch.setattr(verify, "_checkout", lambda: tmp_path)
    monkeypatch.setattr(verify, "ALL_OPS", (Op.MERGE_STATE,))
    monkeypatch.setattr(verify, "write_evidence", lambda **_: pytest.fail("recorded a failed run"))
    monkeypatch.setattr(cascade, "merge_state", lambda *a, **k: (a[0], a[1]))
    assert verify.main(["--backend", "torch", "--record"]) == 1

"""`rocade verify`: exit status, report of a failure, refusals, and what it records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.emulator import aiter

import arch_caps
from arch_caps import EvidenceKind, Op, read_evidence
from rocade import _dispatch, cascade
from rocade.conformance import grid, runner, verify
from rocade.conformance.runner import Outcome
from rocade.conformance.tally import Tally, print_tallies

STATES = ["--op", "merge_state", "--backend", "torch"]


def test_a_passing_run_prints_a_row_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([*STATES, "--case", "3", "--case", "4"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert next(row for row in rows if row[0] == "merge_state")[:5] == ["merge_state", "torch", "2", "0", "0"]


def test_an_operation_of_which_no_case_ran_has_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    tallies = [Tally(Op.MERGE_STATE, "torch", passed=1), Tally(Op.MERGE_STATES, "torch", refused=3)]
    print_tallies(tallies, verbose=False)
    _, ran, refused, *rest = capsys.readouterr().out.splitlines()
    assert ran.split()[5:7] == ["0", "%"]  # equal to the reference
    assert refused.split()[2:6] == ["0", "3", "0", "-"]
    assert "refused: " in rest[-1]


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
        (["--target", "gfx942", "--on", "device"], "no device here is gfx942; there are cpu-"),
        (["--target", "sm_90", "--on", "emulator"], "target: got 'sm_90', expected one of 'gfx942'"),
        (["--target", "sm_89"], "target sm_89 is unknown; there are gfx942"),
        (["--target", "gfx942", "--on", "emulator", "--backend", "cpu"], "'cpu' does not exist on gfx942"),
        (["--cases", "0"], "a positive number"),
        (["--cases", "3", "--full"], "neither --full nor --case"),
        (["--record", "--cases", "3"], "leave out --case and --cases"),
        (["--out", "x.json"], "give both"),
        (["--record", "--out", "not-there/x.json"], "in none that exists"),
        (["--add", "not-there.json"], "not-there.json"),
        (["--backend", "cuda"], "'cuda' does not exist"),
        (["--record", "--case", "1"], "whole operations"),
        (["--record", "--op", "cascade"], "whole record"),
        (["--case", "-1"], "no operation asked for has a case -1"),
        (["--case", "301"], "no operation asked for has a case 301"),
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
    monkeypatch.setattr(verify, "source_hashes", lambda runs, root: {})
    monkeypatch.setattr(verify, "gather_evidence", lambda **facts: written.update(facts) or [])
    assert verify.main(["--backend", "torch", "--record", "--machine", "a test"]) == 0
    assert written["kind"] is EvidenceKind.HARDWARE
    assert written["cases"] == {(Op.MERGE_STATE, "torch"): grid.CASES_PER_OP}
    assert written["target"] == arch_caps.target_of("cpu")
    assert written["root"] == tmp_path
    assert written["on"] == "a test"
    assert set(written["toolchain"]) == {"rocade", "torch", "python"}


def test_nothing_is_recorded_when_a_case_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "arch_caps" / "evidence").mkdir(parents=True)
    monkeypatch.setattr(verify, "_checkout", lambda: tmp_path)
    monkeypatch.setattr(verify, "ALL_OPS", (Op.MERGE_STATE,))
    monkeypatch.setattr(verify, "source_hashes", lambda runs, root: {})
    monkeypatch.setattr(verify, "gather_evidence", lambda **_: pytest.fail("recorded a failed run"))
    monkeypatch.setattr(cascade, "merge_state", lambda *a, **k: (a[0], a[1]))
    assert verify.main(["--backend", "torch", "--record"]) == 1


def test_nothing_is_recorded_when_sources_change_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hash is taken before the run: evidence of an edit made during it would be of what never ran."""
    monkeypatch.setattr(verify, "ALL_OPS", (Op.MERGE_STATE, Op.ATTENTION_SUM))
    file = tmp_path / "sent.json"
    argv = ["--backend", "torch", "--record", "--out", str(file), "--machine", "a test"]

    def at_the_start(runs: list[tuple[Op, str]], root: Path | None) -> dict[tuple[Op, str], str]:
        return {**arch_caps.source_hashes(runs, root), (Op.ATTENTION_SUM, "torch"): "0" * 64}

    monkeypatch.setattr(verify, "source_hashes", at_the_start)
    assert verify.main(argv) == 1
    assert "nothing is recorded: attention_sum on torch\n" in capsys.readouterr().err
    assert not file.exists()


def test_a_received_file_is_added_to_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `--record --out` writes on one machine, which needs no checkout, `--add` takes on another."""
    monkeypatch.setattr(verify, "ALL_OPS", (Op.ATTENTION_SUM,))
    monkeypatch.setattr(verify, "_checkout", lambda: tmp_path)
    file = tmp_path / "sent.json"
    assert (
        verify.main(["--backend", "torch", "--record", "--out", str(file), "--machine", "their machine"]) == 0
    )
    with pytest.raises(SystemExit):
        verify.main(["--add", str(file)])
    assert "kept in a checkout" in capsys.readouterr().err
    (tmp_path / "arch_caps" / "evidence").mkdir(parents=True)
    assert verify.main(["--add", str(file)]) == 0
    (record,) = read_evidence(tmp_path / "arch_caps" / "evidence")
    assert (record.on, record.backend, record.kind) == ("their machine", "torch", EvidenceKind.HARDWARE)
    assert [(op.op, op.cases) for op in record.ops] == [(Op.ATTENTION_SUM, len(grid.cases(Op.ATTENTION_SUM)))]


def test_a_file_of_some_operations_does_not_take_the_place_of_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "ALL_OPS", (Op.ATTENTION_SUM, Op.VARIABLE_LENGTH_ATTENTION_SUM))
    monkeypatch.setattr(verify, "_checkout", lambda: tmp_path)
    (tmp_path / "arch_caps" / "evidence").mkdir(parents=True)
    every, some = tmp_path / "every.json", tmp_path / "some.json"
    argv = ["--backend", "torch", "--record", "--machine", "a test", "--out"]
    assert verify.main([*argv, str(every)]) == 0
    assert verify.main([*argv, str(some), "--op", "attention_sum"]) == 0
    assert verify.main(["--add", str(some)]) == 0
    assert verify.main(["--add", str(every)]) == 0
    with pytest.raises(SystemExit):
        verify.main(["--add", str(some)])
    assert "has variable_length_attention_sum, too, which would be lost" in capsys.readouterr().err


def test_a_sample_is_the_same_every_time() -> None:
    drawn = grid.sample(Op.MERGE_STATE, 12)
    assert drawn == grid.sample(Op.MERGE_STATE, 12)
    assert len(drawn) == 12
    assert set(drawn) < set(grid.cases(Op.MERGE_STATE))
    assert grid.sample(Op.MERGE_STATE, 10_000) == grid.cases(Op.MERGE_STATE)


def test_a_family_is_verified_by_those_of_it_that_are_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AITER_ASM_DIR", aiter.code_objects())
    command = ["--target", "gfx950", "--on", "emulator", "--backend", "aiter", "--op", "single_decode"]
    assert verify.main([*command, "--case", "50000"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:5] for row in rows if "aiter" in str(row)] == [["single_decode", "aiter_asm", "1", "0", "0"]]


def test_a_family_of_which_nothing_is_here_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_dispatch, "_found", {})
    monkeypatch.setenv("AITER_ASM_DIR", str(tmp_path))
    with pytest.raises(SystemExit):
        verify.main(["--target", "gfx950", "--on", "emulator", "--backend", "aiter"])
    said = capsys.readouterr().err
    assert "backend 'aiter' is absent here: AITER's code object" in said
    assert "the emulator runs code objects alone" in said

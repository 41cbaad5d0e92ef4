"""The command line: each word reaches its module, wrong words are told apart, answers match the library."""

from __future__ import annotations

import re
import subprocess
import sys
import types

import pytest

from arch_caps import TARGETS, Op, Vendor, preference
from rocade import cli
from rocade._version import __version__


def test_rest_of_the_line_and_exit_status_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    module = types.ModuleType("fake_command")
    module.main = lambda argv: seen.append(list(argv)) or 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_command", module)
    monkeypatch.setitem(cli.COMMANDS, ("two", "words"), ("fake_command", ""))
    assert cli.main(["two", "words", "--flag", "two"]) == 7
    assert seen == [["--flag", "two"]]


@pytest.mark.parametrize("words", sorted(cli.COMMANDS), ids=" ".join)
def test_every_command_exists_and_explains_its_options(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main([*words, "--help"])
    assert done.value.code == 0
    assert "rocade " + " ".join(words) in capsys.readouterr().out


def test_unknown_word_is_an_error_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["bench", "tpu"])
    assert done.value.code == 2
    assert "bench tpu" in capsys.readouterr().err


def test_no_word_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    text = capsys.readouterr().out
    assert all(" ".join(words) in text for words in cli.COMMANDS)


def test_module_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "rocade", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"rocade {__version__}\n"


def test_info_names_every_backend_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {backend} " in text for backend in preference("cpu"))
    for name, target in TARGETS.items():
        if target.vendor is not Vendor.CPU:
            assert re.search(rf"\n  hip +on {name}: (present|absent: lib)", text)
    assert re.search(r"\n  hip +on gfx942, emulated: present \(rocade_emulator: .*, gpu code: ", text)
    assert re.search(r"\n  aiter_asm +on gfx942, emulated: (present|absent: AITER's code object)", text)


@pytest.mark.parametrize("op", Op)
def test_explain_finds_a_backend_for_every_operation_here(op: Op, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--op", op.value]) == 0
    assert capsys.readouterr().out.startswith(f"{op} on cpu-")


def test_explain_lists_every_reason_and_fails_when_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "explain",
        "--op",
        "batch_decode",
        "--backend",
        "hip",
        "--target",
        "gfx942",
        "--head-dim-qk",
        "512",
    ]
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert "batch_decode on gfx942 is refused" in out
    assert "head_dim_qk is 512" in out


def test_explain_reports_a_malformed_request_like_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["explain", "--op", "batch_decode", "--num-qo-heads", "7", "--num-kv-heads", "2"])
    assert done.value.code == 2
    assert "num_qo_heads" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "first", "last"),
    [("--op", "single_prefill", "append_paged_kv_cache"), ("--kv-layout", "NHD", "HND")],
)
def test_explain_names_the_words_that_a_flag_takes(
    flag: str, first: str, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["explain", "--op", "batch_decode", flag, "no_such_word"])
    said = capsys.readouterr().err.replace("'", "")  # newer Pythons quote no choices
    assert f"choose from {first}, " in said
    assert f", {last})" in said


def test_explain_says_that_the_table_does_not_know_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--op", "batch_decode", "--target", "mi300x"]) == 0
    assert "does not know mi300x" in capsys.readouterr().out
    cli.main(["explain", "--op", "batch_decode", "--target", "gfx942"])
    assert "does not know" not in capsys.readouterr().out

"""On a terminal lines are drawn over; elsewhere each thing is printed once."""

from __future__ import annotations

import os
import shutil

import pytest

from rocade.demo import _terminal
from rocade.demo._terminal import AnswerStream, Progress


def text(tokens: list[int]) -> tuple[str, bool]:
    """Letters; 0 ends the answer."""
    ended = 0 in tokens
    return "".join(chr(96 + t) for t in (tokens[: tokens.index(0)] if ended else tokens)), ended


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_terminal, "on_terminal", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((19, 10)))


def test_progress_off_a_terminal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("load")
    for done in (1, 2, 3):
        progress(done, 3)
    assert capsys.readouterr().out == f"load [{'#' * 24}] 3/3\n"


@pytest.mark.usefixtures("terminal")
def test_progress_on_a_terminal_is_drawn_over(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("load")
    progress(1, 2)
    progress(2, 2)
    out = capsys.readouterr().out
    assert out.count("\r") == 2
    assert out.count("\n") == 1
    assert "1/2" in out


def test_answers_off_a_terminal_come_when_they_end(capsys: pytest.CaptureFixture[str]) -> None:
    stream = AnswerStream(["One?", "Two?"], text)
    stream.update([[1], [2]])
    assert capsys.readouterr().out == ""
    stream.update([[1, 3], [2, 0]])
    assert capsys.readouterr().out == "  Q Two?\n  A b\n"
    stream.update([[1, 3, 4], [2, 0, 5]])
    stream.finish([[1, 3, 4], [2, 0, 5]])
    assert capsys.readouterr().out == "  Q One?\n  A acd ...\n"


@pytest.mark.usefixtures("terminal")
def test_answers_on_a_terminal_fit_their_lines_and_are_printed_in_full(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = AnswerStream(["One?", "Two?"], text)
    long = list(range(1, 27))
    stream.update([[1], [2]])
    stream.update([long, [2, 0]])
    drawn = capsys.readouterr().out
    assert "\x1b[2A" in drawn
    last = drawn.split("\x1b[J")[-1].splitlines()
    assert last == ["  One?  ...tuvwxyz", "  Two?  b"]
    assert max(map(len, last)) < 19
    stream.finish([[*long, 0], [2, 0]])
    out = capsys.readouterr().out.split("\x1b[J")[-1]
    assert out == f"  Q One?\n  A {text(long)[0]}\n  Q Two?\n  A b\n"


@pytest.mark.usefixtures("terminal")
def test_more_answers_than_lines_are_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    stream = AnswerStream(["?"] * 10, text)
    stream.update([[1]] * 10)
    assert capsys.readouterr().out == ""

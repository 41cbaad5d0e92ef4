"""What the demo shows while it works: on a terminal progress and answers in place, elsewhere plain lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable

_CLEAR_LINE = "\x1b[2K"
_MIN_COLUMNS = 18  # of a line with a question, an answer, and dots where it is cut


def on_terminal() -> bool:
    """Whether somebody watches, so that lines can be drawn over."""
    return sys.stdout.isatty()


class Progress:
    """One line that counts up; off a terminal it is printed once, when it is full."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __call__(self, done: int, total: int) -> None:
        """Show `done` of `total`."""
        width = 24
        bar = "#" * (width * done // total)
        line = f"{self._label} [{bar:{width}}] {done}/{total}"
        if on_terminal():
            print(f"\r{_CLEAR_LINE}{line}", end="\n" if done == total else "", flush=True)
        elif done == total:
            print(line, flush=True)


class AnswerStream:
    """Answers of a batch as they grow.

    On a terminal each request has a line that shows the end of its answer; at last the full answers take
    their place. Elsewhere an answer is printed when it ends.
    """

    def __init__(self, questions: list[str], text: Callable[[list[int]], tuple[str, bool]]) -> None:
        """`text` turns tokens into the answer so far, and whether it has ended."""
        self._questions = questions
        self._text = text
        self._printed: set[int] = set()
        size = shutil.get_terminal_size()
        self._live = on_terminal() and len(questions) < size.lines and size.columns >= _MIN_COLUMNS
        self._drawn = 0

    def update(self, tokens: list[list[int]]) -> None:
        """Show one more token of every request."""
        texts = [self._text(part) for part in tokens]
        if self._live:
            self._draw([text for text, _ in texts])
        else:
            for i, (text, ended) in enumerate(texts):
                if ended:
                    self._print(i, text)

    def finish(self, tokens: list[list[int]]) -> None:
        """Print in full what has not been printed."""
        if self._live:
            self._erase()
        for i, part in enumerate(tokens):
            text, ended = self._text(part)
            self._print(i, text if ended else text + " ...")

    def _print(self, i: int, text: str) -> None:
        if i not in self._printed:
            self._printed.add(i)
            print(f"  Q {self._questions[i]}\n  A {' '.join(text.split())}", flush=True)

    def _draw(self, texts: list[str]) -> None:
        self._erase()
        columns = shutil.get_terminal_size().columns
        label = min(max(map(len, self._questions)), columns // 2)
        room = columns - label - 5  # 2 before, 2 between, and the last column, where terminals wrap
        for question, text in zip(self._questions, texts, strict=True):
            answer = " ".join(text.split())
            tail = answer if len(answer) <= room else "..." + answer[3 - room :]
            print(f"  {question[:label]:{label}}  {tail}")
        self._drawn = len(texts)
        sys.stdout.flush()

    def _erase(self) -> None:
        """Back to the first line of the last drawing, with the lines below it empty."""
        if self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="")
        self._drawn = 0

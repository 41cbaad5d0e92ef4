"""A progress bar in plain text: one line that is redrawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import TextIO

BAR_CHARS = 24
LINE_SECONDS = 5.0  # between lines where nothing can be redrawn


class Progress:
    """Counts `total` steps on `stream` (stderr). Not thread-safe: one thread counts."""

    def __init__(self, total: int, what: str, stream: TextIO | None = None) -> None:
        self.total, self.what = total, what
        self.stream = sys.stderr if stream is None else stream
        self.redraws = self.stream.isatty()
        self.done = 0
        self.began = time.monotonic()
        self.shown = self.began

    def step(self, name: str) -> None:
        """One more is done, `name`."""
        self.done += 1
        now = time.monotonic()
        if self.redraws:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r" + self.text(name)[:width].ljust(width))
        elif self.done == self.total or now - self.shown >= LINE_SECONDS:
            self.shown = now
            self.stream.write(self.text(name) + "\n")
        self.stream.flush()

    def text(self, name: str) -> str:
        """The bar, the counts, the time so far, and the last step."""
        filled = BAR_CHARS * self.done // max(self.total, 1)
        bar = "#" * filled + "." * (BAR_CHARS - filled)
        seconds = time.monotonic() - self.began
        return f"{self.what} [{bar}] {self.done}/{self.total} {seconds:.0f} s {name}"

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the line that was redrawn."""
        if self.redraws and self.done:
            self.stream.write("\n")
            self.stream.flush()

"""What `rocade verify` counts and prints: a progress bar on stderr, a table and failures on stdout."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from arch_caps import Op
from rocade.conformance.runner import Outcome, Report

SHOWN_FAILURES = 20
BAR_WIDTH = 30


@dataclass(slots=True)
class Tally:
    """What became of one operation's cases on one backend."""

    op: Op
    backend: str
    passed: int = 0
    refused: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    launches: int = 0  # of kernels in the emulator
    failures: list[Report] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        """Count one case."""
        self.launches += report.launches
        if report.outcome is Outcome.PASSED:
            self.passed += 1
            self.worst = max(self.worst, report.worst)
        elif report.outcome is Outcome.REFUSED:
            self.refused += 1
            self.refusals[report.detail] = self.refusals.get(report.detail, 0) + 1
        else:
            self.failures.append(report)

    @property
    def summary(self) -> str:
        """In one line."""
        launched = f", {self.launches} launches" if self.launches else ""
        return f"{self.passed} passed, {self.refused} refused, {len(self.failures)} failed{launched}"


class Bar:
    """A progress bar on stderr; silent when that is no terminal, except for one line an operation."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total, self._done = label, total, 0
        self._live = sys.stderr.isatty()

    def step(self, failures: int) -> None:
        """One case done."""
        self._done += 1
        if not self._live:
            return
        filled = BAR_WIDTH * self._done // max(self._total, 1)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        count = f"{self._done}/{self._total}" + (f", {failures} failed" if failures else "")
        print(f"\r{self._label:40} [{bar}] {count}", end="", file=sys.stderr, flush=True)

    def close(self, text: str) -> None:
        """Replace the bar by its result."""
        start = "\r" if self._live else ""
        print(f"{start}{self._label:40} {text:<{BAR_WIDTH + 30}}", file=sys.stderr, flush=True)


def print_tallies(tallies: list[Tally], *, verbose: bool) -> None:
    """A table on stdout; then failures with what is needed to see them again."""
    counts = f"{'passed':>7}{'refused':>9}{'failed':>8}"
    print(f"{'operation':32}{'backend':11}{counts}{'worst error':>13}{'seconds':>9}")
    for t in tallies:
        counts = f"{t.passed:7}{t.refused:9}{len(t.failures):8}"
        worst = f"{100 * t.worst:.0f} %" if t.passed else "-"
        print(f"{t.op:32}{t.backend:11}{counts}{worst:>12} {t.seconds:8.1f}")
    print("worst error: the largest one of the passed cases, of what its tolerance allows")
    if not verbose and any(t.refused for t in tallies):
        print("refused: the backend does not serve the case and says so; --verbose prints why")
    for tally in tallies if verbose else ():
        for text, count in sorted(tally.refusals.items()):
            print(f"refused {count} x {tally.op} on {tally.backend}: {text}")
    failures = [report for tally in tallies for report in tally.failures]
    for report in failures[:SHOWN_FAILURES]:
        print(f"\nFAILED {report.case.op} on {report.backend}: {report}")
    if len(failures) > SHOWN_FAILURES:
        print(f"\n... and {len(failures) - SHOWN_FAILURES} more")

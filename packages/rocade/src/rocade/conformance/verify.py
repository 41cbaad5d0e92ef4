"""`rocade verify`: runs the conformance grid on this machine, prints what held, and can record evidence."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from arch_caps import ROWS, EvidenceKind, Op, Status, preference, target_of, write_evidence
from rocade._device import place
from rocade._dispatch import absent
from rocade._version import __version__
from rocade.conformance import grid
from rocade.conformance.cases import Case
from rocade.conformance.runner import Outcome, Report, run

SHOWN_FAILURES = 20
BAR_WIDTH = 30
ALL_OPS = tuple(Op)


@dataclass(slots=True)
class Tally:
    """What became of one operation's cases on one backend."""

    op: Op
    backend: str
    passed: int = 0
    refused: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    failures: list[Report] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        """Count one case."""
        if report.outcome is Outcome.PASSED:
            self.passed += 1
            self.worst = max(self.worst, report.worst)
        elif report.outcome is Outcome.REFUSED:
            self.refused += 1
            self.refusals[report.detail] = self.refusals.get(report.detail, 0) + 1
        else:
            self.failures.append(report)


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocade verify",
        description="Hold every backend of a target to the fp64 oracle. Exit status 1 when a case fails.",
    )
    parser.add_argument("--target", default="cpu", help="what to verify: cpu (default)")
    parser.add_argument("--op", action="append", choices=[op.value for op in Op], help="only this operation")
    parser.add_argument("--backend", action="append", help="only this backend; default: all of the target")
    parser.add_argument("--case", type=int, action="append", help="only the case of this index")
    parser.add_argument("--full", action="store_true", help="the full product of the axes, hours long")
    parser.add_argument("--record", action="store_true", help="write evidence into this checkout's arch_caps")
    parser.add_argument("--on", help="the machine, in words, for the record; default: its processor")
    parser.add_argument("--verbose", action="store_true", help="print why cases were refused")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the grid. 0: every case passed or was refused by the table; 1: a failure; 2: a wrong command."""
    parser = _parser()
    options = parser.parse_args(argv)
    target = target_of(options.target)
    problem = _problem(options, target)
    if problem:
        parser.error(problem)
    tallies = [
        _verify(op, backend, options, target)
        for op in map(Op, options.op or ALL_OPS)
        for backend in _backends(options, target, op)
    ]
    _print_summary(tallies, verbose=options.verbose)
    failed = any(tally.failures for tally in tallies)
    if failed or not any(tally.passed for tally in tallies):
        print("verify: failed" if failed else "verify: no case ran", file=sys.stderr)
        return 1
    if options.record:
        _record(tallies, target, options.on or processor())
    return 0


def _problem(options: argparse.Namespace, target: str) -> str:
    """Why the command cannot be carried out as given, or nothing."""
    if target != target_of("cpu"):
        return f"target {target} cannot be verified on this machine yet; only {target_of('cpu')} can"
    for backend in options.backend or ():
        if backend not in preference(target):
            return (
                f"backend {backend!r} does not exist on {target}; there are {', '.join(preference(target))}"
            )
        why = absent(backend, place(torch.device("cpu")))
        if why:
            return f"backend {backend!r} is absent here: " + "; ".join(reason.text for reason in why)
    for index in options.case or ():
        ops = tuple(map(Op, options.op or ALL_OPS))
        if all(grid.find(op, index) is None for op in ops):
            return f"no operation asked for has a case {index}"
    if options.record and (options.case or options.op):
        return "--record replaces a backend's whole record; leave out --op and --case"
    if options.record and not (_checkout() / "arch_caps" / "evidence").is_dir():
        return "--record writes into a checkout, and rocade does not run from one"
    return ""


def _checkout() -> Path:
    return Path(__file__).resolve().parents[5]


def _backends(options: argparse.Namespace, target: str, op: Op) -> list[str]:
    """Backends to run an op on: those asked for, else all that are built; absent ones are named."""
    built = [
        name
        for name in options.backend or preference(target)
        if (op, name) in ROWS and ROWS[op, name].status is Status.BUILT
    ]
    for name in built:
        for reason in absent(name, place(torch.device("cpu"))):
            print(f"{op:30} {name}: absent: {reason.text}", file=sys.stderr)
    return [name for name in built if not absent(name, place(torch.device("cpu")))]


def _cases(op: Op, options: argparse.Namespace) -> list[Case]:
    """The cases asked for by index, or all of CI's or of the full product."""
    if options.case:
        found = (grid.find(op, index) for index in sorted(set(options.case)))
        return [case for case in found if case is not None]
    return list(grid.full(op)) if options.full else grid.cases(op)


def _verify(op: Op, backend: str, options: argparse.Namespace, target: str) -> Tally:
    tally = Tally(op, backend)
    cases = _cases(op, options)
    bar = Bar(f"{op} on {backend}", len(cases))
    start = time.perf_counter()
    for case in cases:
        tally.add(run(case, backend, target))
        bar.step(len(tally.failures))
    tally.seconds = time.perf_counter() - start
    bar.close(f"{tally.passed} passed, {tally.refused} refused, {len(tally.failures)} failed")
    return tally


def _print_summary(tallies: list[Tally], *, verbose: bool) -> None:
    """A table on stdout; then failures with what is needed to see them again."""
    counts = f"{'passed':>7}{'refused':>9}{'failed':>8}"
    print(f"{'operation':32}{'backend':9}{counts}{'worst error':>13}{'seconds':>9}")
    for t in tallies:
        counts = f"{t.passed:7}{t.refused:9}{len(t.failures):8}"
        print(f"{t.op:32}{t.backend:9}{counts}{100 * t.worst:10.0f} % {t.seconds:8.1f}")
    print("worst error: the largest one of the passed cases, of what its tolerance allows")
    for tally in tallies if verbose else ():
        for text, count in sorted(tally.refusals.items()):
            print(f"refused {count} x {tally.op} on {tally.backend}: {text}")
    failures = [report for tally in tallies for report in tally.failures]
    for report in failures[:SHOWN_FAILURES]:
        print(f"\nFAILED {report.case.op} on {report.backend}: {report}")
    if len(failures) > SHOWN_FAILURES:
        print(f"\n... and {len(failures) - SHOWN_FAILURES} more")


def processor() -> str:
    """This machine's processor in words, without its host name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _record(tallies: list[Tally], target: str, on: str) -> None:
    paths = write_evidence(
        kind=EvidenceKind.HARDWARE,  # the code under test ran on the very processor that it is for
        target=target,
        on=on,
        toolchain={
            "rocade": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        cases={(t.op, t.backend): t.passed for t in tallies if t.passed},
        root=_checkout(),
    )
    for path in paths:
        print(f"recorded {path}")

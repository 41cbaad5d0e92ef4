"""`rocade verify`: runs the conformance grid on a device or in the emulator, and can record evidence."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from arch_caps import (
    Op,
    gather_evidence,
    members,
    pack_evidence,
    preference,
    read_evidence,
    source_hashes,
    unpack_evidence,
    write_evidence,
)
from rocade._dispatch import absent
from rocade.conformance import grid, narrow
from rocade.conformance.cases import Case
from rocade.conformance.tally import Bar, Tally, print_tallies
from rocade.conformance.where import DEVICE, EMULATOR, Where, chosen, toolchain

ALL_OPS = tuple(Op)
_EPILOG = """\
Evidence from a machine without a checkout: rocade verify --target TARGET --record --out FILE there, and
rocade verify --add FILE in the checkout. It counts as stale unless the sources of both are the same.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocade verify",
        description="Hold every backend of a target to the fp64 oracle. Exit status 1 when a case fails.",
        epilog=_EPILOG,
    )
    parser.add_argument("--target", default="cpu", help="what to verify: cpu (default), or a GPU's name")
    parser.add_argument(
        "--on",
        choices=(DEVICE, EMULATOR),
        help="a device of this machine, or the emulator; default: the device if there is one",
    )
    parser.add_argument("--op", action="append", choices=[op.value for op in Op], help="only this operation")
    parser.add_argument(
        "--backend", action="append", help="only this backend or family of them; default: all of the target"
    )
    parser.add_argument("--case", type=int, action="append", help="only the case of this index")
    parser.add_argument("--cases", type=int, metavar="N", help="a sample of N cases an operation")
    parser.add_argument("--full", action="store_true", help="the full product of the axes, hours long")
    parser.add_argument("--record", action="store_true", help="write evidence into this checkout's arch_caps")
    parser.add_argument("--out", type=Path, metavar="FILE", help="with --record: write it to FILE instead")
    parser.add_argument("--add", type=Path, metavar="FILE", help="run nothing; add a FILE of --out here")
    parser.add_argument("--machine", help="the machine, in words, for the record; default: its processor")
    parser.add_argument("--verbose", action="store_true", help="print why cases were refused")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the grid. 0: every case passed or was refused by the table; 1: a failure; 2: a wrong command."""
    parser = _parser()
    options = parser.parse_args(argv)
    problem = _problem(options)
    if problem:
        parser.error(problem)
    if options.add:
        return _add(options.add, parser)
    try:
        where = chosen(options.target, options.on)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    problem = _backend_problem(options, where)
    if problem:
        parser.error(problem)
    runs = [
        (op, backend) for op in map(Op, options.op or ALL_OPS) for backend in _backends(options, where, op)
    ]
    before = source_hashes(runs, _root(options)) if options.record else {}
    tallies = [_verify(op, backend, options, where) for op, backend in runs]
    print_tallies(tallies, verbose=options.verbose)
    why = _failure(tallies, where)
    if why:
        print(f"verify: {why}", file=sys.stderr)
        return 1
    return _record(tallies, where, options, before) if options.record else 0


def _problem(options: argparse.Namespace) -> str:
    """Why the options do not go together, or nothing."""
    for index in options.case or ():
        ops = tuple(map(Op, options.op or ALL_OPS))
        if all(grid.find(op, index) is None for op in ops) and not _is_narrow(index):
            return f"no operation asked for has a case {index}"
    if options.cases is not None and (options.cases < 1 or options.full or options.case):
        return "--cases takes a positive number, and neither --full nor --case beside it"
    if options.record and (options.case or options.cases is not None):
        return "--record is of whole operations; leave out --case and --cases"
    if options.record and options.op and not options.out:
        return "--record replaces a backend's whole record; leave out --op, or write to a file with --out"
    if options.out and not options.record:
        return "--out is where --record writes to; give both"
    if options.out and (options.out.is_dir() or not options.out.absolute().parent.is_dir()):
        return f"--out {options.out} is a folder, or in none that exists"  # said before the run, not after it
    into_checkout = options.add or (options.record and not options.out)
    if into_checkout and not (_checkout() / "arch_caps" / "evidence").is_dir():
        return "evidence is kept in a checkout, and rocade does not run from one; --record --out FILE works"
    return ""


def _backend_problem(options: argparse.Namespace, where: Where) -> str:
    """Why a backend that was asked for cannot be verified, or nothing."""
    target = where.place.target
    for asked in options.backend or ():
        names = members(asked)
        if not set(names) & set(preference(target)):
            return f"backend {asked!r} does not exist on {target}; there are {', '.join(preference(target))}"
        why = [absent(name, where.place) for name in names]
        if all(why):  # of a family, one is enough
            return f"backend {asked!r} is absent here: " + "; ".join(r.text for some in why for r in some)
    return ""


def _failure(tallies: list[Tally], where: Where) -> str:
    """Why the run as a whole does not count, or nothing."""
    if any(tally.failures for tally in tallies):
        return "failed"
    if not any(tally.passed for tally in tallies):
        return "no case ran: there was none, or each was refused (--verbose prints why)"
    idle = [f"{t.op} on {t.backend}" for t in tallies if t.passed and not t.launches]
    if where.place.emulated and idle:
        return f"no kernel was launched by {', '.join(idle)}"
    return ""


def _checkout() -> Path:
    return Path(__file__).resolve().parents[5]


def _backends(options: argparse.Namespace, where: Where, op: Op) -> list[str]:
    """Backends to run an op on: those asked for, else all that are built; absent ones are named."""
    asked = {name for backend in options.backend or () for name in members(backend)}
    built = [name for name in where.backends(op) if not asked or name in asked]
    for name in built:
        for reason in absent(name, where.place):
            print(f"{op:30} {name}: absent: {reason.text}", file=sys.stderr)
    return [name for name in built if not absent(name, where.place)]


def _is_narrow(index: int) -> bool:
    """Whether a case depends on the backend, so that only the run tells whether it exists."""
    return grid.NARROW_FIRST <= index < grid.FULL_FIRST


def _cases(op: Op, backend: str, options: argparse.Namespace, target: str) -> list[Case]:
    """The cases asked for by index, a sample, or all of CI's or of the full product."""
    if options.case:
        found = (
            narrow.find(op, backend, target, index) if _is_narrow(index) else grid.find(op, index)
            for index in sorted(set(options.case))
        )
        return [case for case in found if case is not None]
    if options.cases is not None:
        return grid.sample(op, options.cases)
    if options.full:
        return list(grid.full(op))
    return [*grid.cases(op), *narrow.narrow(op, backend, target)]


def _verify(op: Op, backend: str, options: argparse.Namespace, where: Where) -> Tally:
    tally = Tally(op, backend)
    cases = _cases(op, backend, options, where.place.target)
    bar = Bar(f"{op} on {backend}", len(cases))
    start = time.perf_counter()
    for case in cases:
        tally.add(where.run(case, backend))
        bar.step(len(tally.failures))
    tally.seconds = time.perf_counter() - start
    bar.close(tally.summary)
    return tally


def _root(options: argparse.Namespace) -> Path | None:
    """The checkout that evidence goes to; None: what ran is installed, and the evidence goes to a file."""
    return None if options.out else _checkout()


def _record(
    tallies: list[Tally], where: Where, options: argparse.Namespace, before: Mapping[tuple[Op, str], str]
) -> int:
    """Write the evidence, unless sources differ from those `before` the run; the exit status."""
    passed = [tally for tally in tallies if tally.passed]
    records = gather_evidence(
        kind=where.kind,
        target=where.place.target,
        on=options.machine or where.machine(),
        toolchain=toolchain(where, sorted({tally.backend for tally in passed})),
        cases={(tally.op, tally.backend): tally.passed for tally in passed},
        root=_root(options),
    )
    changed = [
        f"{done.op} on {record.backend}"
        for record in records
        for done in record.ops
        if before[done.op, record.backend] != done.source_hash
    ]
    if changed:
        said = "sources changed while the cases ran, so nothing is recorded"
        print(f"verify: {said}: {', '.join(changed)}", file=sys.stderr)
        return 1
    if options.out:
        options.out.write_text(pack_evidence(records), encoding="utf-8")
        print(f"recorded {options.out}")
        return 0
    for path in write_evidence(records, _checkout()):
        print(f"recorded {path}")
    return 0


def _add(file: Path, parser: argparse.ArgumentParser) -> int:
    try:
        records = unpack_evidence(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"{file}: {error}")
    kept = {record.file_name: record for record in read_evidence(_checkout() / "arch_caps" / "evidence")}
    for record in records:
        known = kept[record.file_name].ops if record.file_name in kept else ()
        lost = {done.op for done in known} - {done.op for done in record.ops}
        if lost:
            parser.error(
                f"{file}: {record.file_name} has {', '.join(sorted(lost))}, too, which would be lost"
            )
    for path in write_evidence(records, _checkout()):
        print(f"added {path}")
    print("scripts/generate shows it in the matrix")
    return 0

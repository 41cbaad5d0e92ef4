"""The command `rocade-emulator`: run, report on or trace a kernel, list what a file holds, measure speed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rocade_emulator._assembler import AssemblyError
from rocade_emulator._build import BuildError
from rocade_emulator._cli_args import HELP, Word, WordError, parse
from rocade_emulator._launch import SCHEDULES, STEP_LIMIT, launch
from rocade_emulator._program import Program
from rocade_emulator._result import CHECKS, EmulationError, Result
from rocade_emulator._sparse import SparseBuffer
from rocade_emulator._targets import BY_NAME
from rocade_emulator._trace import Step
from rocade_emulator._version import __version__

_EXAMPLES = """\
examples:
  rocade-emulator list kernel.co
  rocade-emulator run kernel.co --grid 4 --block 256 --args random-f32:1024 undefined:4096 i32:1024
  rocade-emulator report kernel.s --target gfx950 --block 64,4 --lds 65536 --args zeros:65536 --json
  rocade-emulator trace kernel.co --kernel sum --block 64 --wave 0 --lines 100 --args file:input.bin zeros:4
  rocade-emulator run kernel.co --block 256 --schedule random --seed 7 --quantum 30 --args zeros:64 --save 0=o

exit status: 0, 1 when faults were found, 2 when the kernel could not be run, 130 when it was interrupted
"""
_QUIET_SECONDS = 1.0  # before the first progress line
FOUND_FAULTS, FAILED = 1, 2
INTERRUPTED = 130  # what shells say of SIGINT


class _Progress:
    """A line on standard error that is written over, when that is a terminal."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.shown = False

    def __call__(self, steps: int) -> None:
        elapsed = time.monotonic() - self.began
        if elapsed < _QUIET_SECONDS or not sys.stderr.isatty():
            return
        self.shown = True
        rate = steps / elapsed / 1e6
        print(
            f"\r{steps / 1e6:10.1f} million instructions, {rate:.2f} million/s",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """Leave the line."""
        if self.shown:
            print(file=sys.stderr)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part, 0) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not X, X,Y or X,Y,Z in whole numbers") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocade-emulator",
        description="Run gfx942 and gfx950 machine code on this CPU, and find faults that a GPU hides.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("list", "kernels of a file, their arguments and resources"),
        ("disasm", "its instructions"),
    ):
        command = commands.add_parser(name, help=text)
        _add_file(command)
    for name, text in (
        ("run", "run a kernel and print what the checks found"),
        ("report", "run a kernel and print counters, occupancy and the bound"),
        ("trace", "run a kernel and print every instruction"),
    ):
        command = commands.add_parser(
            name, help=text, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        _add_file(command)
        _add_launch(command)
    _add_trace(commands.choices["trace"])
    _add_bench(commands.add_parser("bench", help="how fast the emulator runs a matrix kernel here"))
    commands.choices["report"].add_argument(
        "--json", action="store_true", help="print JSON instead of a table"
    )
    return parser


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, help="code object, offload bundle, or assembly (.s)")
    command.add_argument(
        "--target", choices=sorted(BY_NAME), help="the GPU, where the file does not say or holds several"
    )


def _add_launch(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--args", nargs="+", default=[], metavar="ARG", help="kernel arguments, see below")
    add("--kernel", help="its name, when the file has several")
    add("--grid", type=_numbers, default=(1,), metavar="X[,Y[,Z]]", help="workgroups (default 1)")
    add("--block", type=_numbers, required=True, metavar="X[,Y[,Z]]", help="work items of a workgroup")
    add("--lds", type=int, default=0, metavar="BYTES", help="dynamic LDS")
    add(
        "--schedule",
        choices=sorted(SCHEDULES),
        default="round_robin",
        help="who runs next (default round_robin)",
    )
    add("--quantum", type=int, default=1, help="instructions of a turn (default 1)")
    add("--seed", type=int, default=0, help="of the random schedule and of random buffers")
    add("--checks", default="all", help=f"all, none, or of {','.join(CHECKS)} (default all)")
    add("--resident", type=int, default=4, help="workgroups that run together on a thread (default 4)")
    add("--threads", type=int, default=1, help="host threads (default 1)")
    add(
        "--step-limit",
        type=int,
        default=STEP_LIMIT,
        help="instructions after which to give up; 0 is no limit",
    )
    add(
        "--save",
        action="append",
        default=[],
        metavar="N=PATH",
        help="write the buffer of argument N to a file afterwards",
    )


def _add_trace(command: argparse.ArgumentParser) -> None:
    command.add_argument("--group", type=_numbers, metavar="X[,Y[,Z]]", help="only this workgroup")
    command.add_argument("--wave", type=int, help="only this wave of a workgroup")
    command.add_argument("--lanes", type=int, default=4, help="lanes shown of a vector register (default 4)")
    command.add_argument("--lines", type=int, default=0, help="stop after so many lines; 0 is no limit")


def _add_bench(command: argparse.ArgumentParser) -> None:
    command.add_argument("--target", choices=sorted(BY_NAME), help="only this GPU")
    command.add_argument("--seconds", type=float, default=2.0, help="processor time for each (default 2)")
    command.add_argument("--json", action="store_true", help="print JSON, a line for each")


class _Enough(Exception):  # noqa: N818  it is no error
    """Ends a trace that has printed all it should."""


def _printer(options: argparse.Namespace) -> Callable[[Step], None]:
    group = tuple([*options.group, 0, 0][:3]) if options.group else None
    printed = 0

    def see(step: Step) -> None:
        nonlocal printed
        if (group is not None and step.group != group) or (
            options.wave is not None and step.wave != options.wave
        ):
            return
        print(step.line(options.lanes))
        printed += 1
        if printed == options.lines:
            raise _Enough

    return see


def _save(specs: Sequence[str], words: Sequence[Word]) -> None:
    for spec in specs:
        number, _, path = spec.partition("=")
        value = words[int(number)].value if number.isdigit() and int(number) < len(words) else None
        if not isinstance(value, SparseBuffer) or not path:
            raise WordError(f"--save {spec}: expected N=PATH with the position of a buffer argument")
        Path(path).write_bytes(value.read(value.size))


def _launch(
    options: argparse.Namespace, program: Program, trace: Callable[[Step], None] | None = None
) -> Result:
    words = [parse(word, options.seed + k) for k, word in enumerate(options.args)]
    progress = _Progress()
    try:
        result = launch(
            program,
            options.kernel,
            options.grid,
            options.block,
            [word.value for word in words],
            dynamic_lds=options.lds,
            schedule=options.schedule,
            quantum=options.quantum,
            seed=options.seed,
            checks=options.checks if options.checks in ("all", "none") else options.checks.split(","),
            resident=options.resident,
            threads=options.threads,
            step_limit=options.step_limit,
            undefined=[k for k, word in enumerate(words) if word.undefined],
            progress=progress,
            trace=trace,
        )
    finally:
        progress.end()
    _save(options.save, words)
    return result


def _list(program: Program) -> None:
    for kernel in program.kernels.values():
        print(f"{kernel.name} ({program.target.name})")
        agprs = f", AGPRs from {kernel.accum_offset}" if kernel.accum_offset else ""
        registers = f"{kernel.vgprs} vector registers{agprs}, {kernel.sgprs} scalar"
        print(f"  {registers}, LDS {kernel.lds_bytes} bytes, scratch {kernel.scratch_bytes} bytes a lane")
        print(f"  at most {kernel.max_block} work items; argument block of {kernel.kernarg_bytes} bytes")
        for position, arg in enumerate(kernel.explicit_args):
            text = f"  {position:4} at {arg.offset:4}: {arg.size} bytes, {arg.kind} {arg.name} {arg.access}"
            print(text.rstrip())


def _bench(options: argparse.Namespace) -> int:
    from rocade_emulator import _bench

    for speed in _bench.speeds([options.target] if options.target else sorted(BY_NAME), options.seconds):
        print(json.dumps(speed.record()) if options.json else speed.line(), flush=True)
    return 0


def _command(options: argparse.Namespace) -> int:
    if options.command == "bench":
        return _bench(options)
    program = Program.from_file(options.file, options.target)
    if options.command == "list":
        _list(program)
    elif options.command == "disasm":
        print(program.disassembly())
    elif options.command == "trace":
        try:
            result = _launch(options, program, _printer(options))
        except _Enough:
            return 0
        print(result.describe(), file=sys.stderr)
        return 0 if result.ok else FOUND_FAULTS
    else:
        result = _launch(options, program)
        as_json = options.command == "report" and options.json
        print(
            result.json(2)
            if as_json
            else result.report()
            if options.command == "report"
            else result.describe()
        )
        return 0 if result.ok else FOUND_FAULTS
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status, as the help states them."""
    options = _parser().parse_args(argv)
    try:
        return _command(options)
    except EmulationError as error:
        print(error, file=sys.stderr)
        return FOUND_FAULTS
    except KeyboardInterrupt:
        print("rocade-emulator: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a listing or a trace has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the exit would fail to flush
        return 0
    except (AssemblyError, BuildError, KeyError, ValueError, OSError, MemoryError) as error:
        text = error.args[0] if isinstance(error, KeyError) else error
        print(f"rocade-emulator: {text}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())

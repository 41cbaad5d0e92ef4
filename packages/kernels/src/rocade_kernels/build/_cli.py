"""`python -m rocade_kernels`: prebuild GPU kernels into the cache, and show what each takes of a device."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields

from rocade_kernels._cache import BuildError
from rocade_kernels._devices import DEVICES
from rocade_kernels._instances import INSTANCES
from rocade_kernels.build._many import build_all
from rocade_kernels.build._packed import Code
from rocade_kernels.build._resources import Resources, waves_per_simd
from rocade_kernels.build._store import Store
from rocade_kernels.instances import Instance


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="python -m rocade_kernels", description=(__doc__ or "").split(": ")[1])
    commands = top.add_subparsers(dest="command", required=True)
    texts = {
        "build": "compile every instance that is not in the cache yet, several at a time",
        "info": "print registers, local memory and size of every instance, building what is missing",
    }
    for name, text in texts.items():
        command = commands.add_parser(name, help=text, description=text)
        for option in ("--target", "--kernel"):
            command.add_argument(option, action="append", metavar="NAME", help="only this; may be repeated")
        command.add_argument("--jobs", type=int, default=0, metavar="N", help="compilers at once; one a core")
        command.add_argument("--list", action="store_true", help="only print the names of the instances")
    return top


def chosen(options: argparse.Namespace) -> list[Instance]:
    """The instances that the options ask for.

    Raises:
        BuildError: there is none; the text says which names there are.
    """
    found = [
        instance
        for instance in INSTANCES
        if (not options.target or instance.target in options.target)
        and (not options.kernel or instance.kernel in options.kernel)
    ]
    for option, names in (
        (options.target, {instance.target for instance in INSTANCES}),
        (options.kernel, {instance.kernel for instance in INSTANCES}),
    ):
        unknown = sorted(set(option or ()) - names)
        if unknown:
            raise BuildError(f"no instance of {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    return found


def table(codes: Sequence[Code]) -> str:
    """One line an instance, one column a resource; `-` where the target does not tell."""
    names = [field.name for field in fields(Resources)]
    rows = [["instance", *names, "waves_per_simd", "bytes"]]
    for code in codes:
        device = DEVICES[code.instance.target]
        values = (*(getattr(code.resources, name) for name in names), waves_per_simd(code.resources, device))
        cells = ["-" if value is None else str(value) for value in values]
        rows.append([code.instance.name, *cells, str(len(code.image))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(pairs))
        for pairs in ([*zip(row, widths, strict=True)] for row in rows)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 1 when something could not be built."""
    options = parser().parse_args(arguments)
    try:
        instances = chosen(options)
        if options.list:
            print("\n".join(instance.name for instance in instances))
            return 0
        codes = list(build_all(Store(), instances, options.jobs).values())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(table(codes) if options.command == "info" else f"{len(codes)} GPU kernels are in the cache")
    return 0

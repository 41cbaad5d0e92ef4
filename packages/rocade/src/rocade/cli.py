"""The command `rocade`: picks a subcommand, imports it only then, and hands it the rest of the line."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

# Command words -> module with `main(argv: Sequence[str]) -> int`, and what the command does.
COMMANDS = {
    ("info",): ("rocade._info", "versions, devices, backends present or why not, and what each one serves"),
    ("explain",): ("rocade._explain_cli", "which backend serves a call, and every reason of the others"),
    ("verify",): ("rocade.conformance.verify", "run the conformance grid against the fp64 oracle"),
    ("demo",): ("rocade.demo", "answer a batch of questions that share a long prompt with a real model"),
    ("prebuild-aiter",): (
        "rocade.backends.aiter.bootstrap.prebuild",
        "have AITER build its libraries ahead, and check each against fp64",
    ),
    ("bench", "cpu"): ("rocade.bench.cpu", "time the CPU backend beside PyTorch"),
    ("bench", "gpu"): ("rocade.bench.gpu", "time a GPU backend beside FlashInfer"),
}


def _parser() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {' '.join(words):16}{text}" for words, (_, text) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="rocade",
        description="LLM attention with FlashInfer's API.",
        epilog=f"commands:\n{listing}\n\nrocade COMMAND --help lists a command's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="rocade COMMAND [options]",
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    return parser


def _find(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Module and remaining arguments of the command that `words` starts with."""
    for name, (module, _) in COMMANDS.items():
        if tuple(words[: len(name)]) == name:
            return module, words[len(name) :]
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; the exit status is 0 when all is well, 1 for a finding, 2 for a wrong command."""
    words = list(sys.argv[1:] if argv is None else argv)
    found = _find(words)
    if found:
        run: Callable[[Sequence[str]], int] = importlib.import_module(found[0]).main
        return run(found[1])
    parser = _parser()
    options, unknown = parser.parse_known_args(words)
    if options.version:
        from rocade._version import __version__

        print(f"rocade {__version__}")
        return 0
    if unknown:
        parser.error(f"unknown command {' '.join(unknown)!r}; see rocade --help")
    parser.print_help()
    return 2

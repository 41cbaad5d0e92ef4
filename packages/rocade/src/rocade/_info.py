"""`rocade info`: what is installed, which devices there are, which backends are present, what they serve."""

from __future__ import annotations

import argparse
import importlib
import platform
import textwrap
from collections.abc import Iterator, Sequence

import torch

from arch_caps import ROWS, Status, preference, target_of
from rocade._device import place
from rocade._dispatch import absent
from rocade.backends import REGISTRY

_DISTRIBUTIONS = ("rocade", "arch_caps", "rocade_kernels", "rocade_emulator")
_WIDTH = 98  # columns of a line, without the section's indentation


def _versions() -> Iterator[str]:
    for name in _DISTRIBUTIONS:
        try:
            version = importlib.import_module(f"{name}._version").__version__
        except ModuleNotFoundError:
            version = "not installed"
        yield f"{name:16} {version}"
    yield f"{'torch':16} {torch.__version__}"
    yield f"{'python':16} {platform.python_version()}"


def _devices() -> Iterator[str]:
    target = target_of("cpu")
    order = ", ".join(preference(target))
    yield f"{'cpu':16} {target}, {torch.get_num_threads()} threads; auto tries {order}"
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        yield f"{f'cuda:{index}':16} {found.name}, {found.multi_processor_count} compute units"


def _backends() -> Iterator[str]:
    for name in REGISTRY:
        reasons = absent(name, place(torch.device("cpu")))
        yield f"{name:16} " + ("present" if not reasons else "absent: " + "; ".join(map(str, reasons)))


def _rows() -> Iterator[str]:
    for backend in sorted({row.backend for row in ROWS.values()}):
        for status in Status:
            ops = [row.op for row in ROWS.values() if row.backend == backend and row.status is status]
            if ops:
                text = f"{backend:16} {status}: {', '.join(ops)}"
                yield textwrap.fill(text, _WIDTH, subsequent_indent=" " * 21)


def main(argv: Sequence[str]) -> int:
    """Print the four sections; fails only when the package itself is broken."""
    argparse.ArgumentParser(prog="rocade info", description=__doc__).parse_args(argv)
    for title, lines in (
        ("Versions", _versions()),
        ("Devices", _devices()),
        ("Backends", _backends()),
        ("Operations", _rows()),
    ):
        print(f"{title}\n  " + "\n  ".join(lines))
    return 0

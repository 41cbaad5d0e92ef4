"""`rocade info`: what is installed, which devices there are, which backends are present, what they serve."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import platform
import textwrap
from collections.abc import Iterator, Sequence

import torch

from arch_caps import ROWS, TARGETS, Status, Vendor, preference, target_of
from rocade._device import place
from rocade._dispatch import absent, versions
from rocade._place import Place
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


def _places() -> Iterator[Place]:
    """This machine's devices, then GPUs that it does not have, then what the emulator stands for."""
    cuda = (torch.device("cuda", index) for index in range(torch.cuda.device_count()))
    here = dict.fromkeys(place(device) for device in (torch.device("cpu"), *cuda))
    yield from here
    gpus = [name for name, target in TARGETS.items() if target.vendor is not Vendor.CPU]
    yield from (Place(name, emulated=False) for name in gpus if Place(name, emulated=False) not in here)
    if importlib.util.find_spec("rocade_emulator") is not None:
        emulated = importlib.import_module("rocade_emulator").TARGETS
        yield from (Place(name, emulated=True) for name in gpus if name in emulated)


def _has_kernels(backend: str, target: str) -> bool:
    rows = (row for (_, name), row in ROWS.items() if name == backend)
    return any((row.kernels or row.objects) and row.targets.holds(target, None) for row in rows)


def _backends() -> Iterator[str]:
    here = place(torch.device("cpu"))
    for name in REGISTRY:
        for at in _places():
            if name not in preference(at.target) or not (at == here or _has_kernels(name, at.target)):
                continue
            reasons = absent(name, at)
            facts = ", ".join(f"{key}: {value}" for key, value in versions(name, at).items())
            state = "absent: " + "; ".join(map(str, reasons)) if reasons else "present"
            where = at.target + (", emulated" if at.emulated else "")
            yield f"{name:16} on {where}: {state}" + (f" ({facts})" if facts else "")


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

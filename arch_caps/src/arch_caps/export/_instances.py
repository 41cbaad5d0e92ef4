"""The list of GPU kernels to build ahead of time, from built rows. A planned row builds nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from arch_caps._kernel import Kernel
from arch_caps._row import Row
from arch_caps._table import TARGETS
from arch_caps._types import Status

PROLOGUE = """\
from rocade_kernels.instances import Instance

"""


def instance_list(rows: Iterable[Row]) -> str:
    """The module's text, below its docstring."""
    found = {
        line: None
        for row in rows
        if row.status is Status.BUILT
        for target in TARGETS
        if row.targets.holds(target, None)
        for kernel in row.kernels
        for line in _instances(kernel, target)
    }
    body = "\n" + "".join(f"    {line},\n" for line in sorted(found)) if found else ""
    return f"{PROLOGUE}INSTANCES: tuple[Instance, ...] = ({body})\n"


def _instances(kernel: Kernel, target: str) -> Iterable[str]:
    for dtype, dim, variant in itertools.product(kernel.dtypes or ("",), kernel.head_dims, kernel.variants):
        yield f'Instance("{kernel.name}", "{target}", "{dtype}", {dim}, "{variant}")'

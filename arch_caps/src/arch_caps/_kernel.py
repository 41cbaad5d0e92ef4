"""`Kernel`: a GPU kernel that a row needs, and the choices that are compiled ahead of time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from arch_caps._types import DType

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One source file and the instances of it that a wheel holds, for each target of the row.

    Every combination of dtype, head dim and variant is one instance. A kernel that serves several rows is
    named by each of them, and built once.
    """

    name: str  # of the file in hip/<family>, without suffix
    dtypes: tuple[DType, ...] = ()  # (): the code is the same for all
    head_dims: tuple[int, ...] = (0,)  # 0: any
    variants: tuple[str, ...] = ("",)  # "": the plain one

    def __post_init__(self) -> None:
        names = (self.name, *(variant for variant in self.variants if variant))
        problems = [f"{name!r} is no name" for name in names if not _NAME.fullmatch(name)]
        if not self.head_dims or not self.variants:
            problems.append("no head dim or no variant: nothing would be built")
        if any(type(dim) is not int or dim < 0 for dim in self.head_dims):
            problems.append(f"head dims are {self.head_dims!r}")
        if problems:
            raise ValueError(f"kernel {self.name!r}: " + "; ".join(problems))

"""`Wanted`: which library is asked for, and for what calls."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rocade_kernels.aiter import names
from rocade_kernels.aiter.names import VariantKey


@dataclass(frozen=True, slots=True)
class Wanted:
    """One question. Two devices that are the same to the table share its answer."""

    key: VariantKey
    version: str  # of AITER
    target: str  # the device's name in the table
    head_dim: int
    page_size: int  # 0: not paged

    @property
    def module(self) -> str:
        """The library's name without suffix."""
        return names.module_name(self.key, self.version)

    @property
    def symbol(self) -> str:
        """The function that the library must export."""
        return names.entry(self.key, self.version).symbol

    def __str__(self) -> str:
        pages = f" with pages of {self.page_size}" if self.page_size else ""
        return f"{self.module} at head size {self.head_dim}{pages}"


@dataclass(frozen=True, slots=True)
class Means:
    """With what to answer it."""

    device: torch.device
    jobs: int | None = None  # compilers at once; None leaves it to AITER

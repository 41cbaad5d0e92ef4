"""`CodeObject`: a prebuilt kernel of another project that was executed, known by the hash of its file."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHA256 = re.compile(r"[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeObject:
    """One file, and what its caller must know of it. A file of any other content is unknown, and refused.

    It computes attention for requests of any length, whose first rows and lengths it reads from arrays.
    """

    target: str
    product: str  # folder of the chips that it is tuned for; "" for all of the target
    file: str  # its name
    sha256: str  # of the file, in hex
    symbol: str  # the kernel's
    head_dim_qk: int
    head_dim_vo: int
    causal: bool  # bottom-right causal; else no mask
    tile_rows: int  # query rows of one request and head that a workgroup computes at a time
    threads: int  # of a workgroup
    one_tile: bool  # a request must have no more rows than a tile: see the list
    min_keys: int  # a request must have this many: see the list
    seen_in: tuple[str, ...]  # versions of its distribution that hold this very file

    def __post_init__(self) -> None:
        if not _SHA256.match(self.sha256):
            raise ValueError(f"{self.file}: {self.sha256!r} is no SHA-256")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Chips, by PCI device id, for which a folder of code objects is meant instead of the target's first."""

    target: str
    name: str
    chips: tuple[int, ...]

"""The source of a kernel and everything it includes, and one hash over them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocade_kernels._cache import BuildError

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*)$", re.MULTILINE)
_NAME = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')


@dataclass(frozen=True)
class Tree:
    """A folder with kernels in `hip/<family>/` and headers in `hip/` and `include/`."""

    root: Path

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Where headers are looked for, besides beside the file that includes them."""
        return (self.root / "hip", self.root / "include")

    def source(self, kernel: str) -> Path:
        """The one source file of a kernel.

        Raises:
            BuildError: there is none, or more than one.
        """
        found = sorted((self.root / "hip").glob(f"*/{kernel}.hip"))
        if len(found) != 1:
            places = ", ".join(map(str, found)) or f"none below {self.root / 'hip'}"
            raise BuildError(f"kernel {kernel!r} needs exactly one source file {kernel}.hip; found: {places}")
        return found[0]

    def closure(self, kernel: str) -> list[Path]:
        """A kernel's source and every file here that it includes, also under a condition that does not hold.

        Raises:
            BuildError: an include is missing, or its name is a macro, which cannot be followed.
        """
        first = self.source(kernel).resolve()
        found, waiting = {first}, [first]
        while waiting:
            new = {path for path in self._included(waiting.pop()) if path not in found}
            found |= new
            waiting += new
        return sorted(found)

    def _included(self, path: Path) -> Iterator[Path]:
        for match in _INCLUDE.finditer(path.read_text(encoding="utf-8")):
            name = _NAME.match(match[1])
            if name is None:
                raise BuildError(f"{path}: cannot follow '#include {match[1].strip()}'")
            quoted, angled = name.groups()
            places = (*([path.parent] if quoted else []), *self.include_dirs)
            hit = next((p for place in places if (p := place / (quoted or angled)).is_file()), None)
            if hit is not None:
                yield hit.resolve()
            elif quoted:  # what stands in <> and is not ours belongs to the compiler
                raise BuildError(f'{path}: "{quoted}" is in none of {", ".join(map(str, places))}')

    def source_hash(self, kernel: str) -> str:
        """SHA-256, in hex, over places and bytes of the closure."""
        digest = hashlib.sha256()
        root = self.root.resolve()
        for path in self.closure(kernel):
            content = path.read_bytes()
            place = path.relative_to(root) if path.is_relative_to(root) else path
            digest.update(f"{place}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

"""Which files an implementation consists of, and one hash over them: what evidence is bound to.

Works on a checkout. The closure follows import statements, also those inside functions, through our own
packages. arch_caps is left out, but what the row accepts is part of the hash: a wider row needs a new run.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from arch_caps._row import Row
from arch_caps._table import ROWS
from arch_caps._types import Op

# Import name -> source directory in the repository.
PACKAGES = {
    "rocade": "packages/rocade/src",
    "rocade_kernels": "packages/kernels/src",
    "rocade_emulator": "packages/emulator/src",
}
NATIVE_SUFFIXES = frozenset({".c", ".cpp", ".h", ".hip", ".hpp", ".inc"})


def source_hash(op: Op, backend: str, root: Path) -> str:
    """SHA-256, in hex, over every source of the implementation below the checkout `root`, and over its row.

    Raises KeyError when there is no such row, FileNotFoundError when its entry or a native source is missing.
    """
    entry = ROWS[op, backend]
    digest = hashlib.sha256(repr(entry.accepts).encode())
    for path in source_files(entry, root):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def source_files(entry: Row, root: Path) -> list[Path]:
    """Every Python and native source of the row's implementation, sorted."""
    return sorted({*_python_closure(entry.entry.split(":")[0], root), *_native(entry, root)})


def _python_closure(module: str, root: Path) -> set[Path]:
    first = _module_file(module, root)
    if first is None:
        raise FileNotFoundError(f"no source file for module {module} below {root}")
    found, waiting = {first}, [first]
    while waiting:
        new = {path for path in _imported(waiting.pop(), root) if path not in found}
        found |= new
        waiting += new
    return found


def _module_file(module: str, root: Path) -> Path | None:
    """The file of one of our modules; None for a name outside our packages or one that is no module."""
    place = PACKAGES.get(module.split(".")[0])
    if place is None:
        return None
    stem = root / place / Path(*module.split("."))
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)


def _imported(path: Path, root: Path) -> Iterator[Path]:
    """Files that `path` names in imports. Parent packages do not count: rocade's would pull in everything."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            names = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
        else:
            continue
        for full, outer in names:
            file = _module_file(full, root) or _module_file(outer, root)
            if file is not None:
                yield file


def _native(entry: Row, root: Path) -> Iterator[Path]:
    """Files named by the row, and the native sources in directories that it names."""
    for name in entry.native:
        place = root / name
        if not place.exists():
            raise FileNotFoundError(f"row ({entry.op}, {entry.backend}) names {name}, which is not there")
        files = [place] if place.is_file() else place.rglob("*")
        yield from (p for p in files if p == place or (p.is_file() and p.suffix in NATIVE_SUFFIXES))

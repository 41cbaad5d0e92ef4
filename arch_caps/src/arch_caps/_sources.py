"""Which files an implementation consists of, and one hash over them: what evidence is bound to.

Works on a checkout, or on packages as they are installed. The closure follows import statements, also those
inside functions, through our own packages. arch_caps is left out, but what the row accepts is part of the
hash: a wider row needs a new run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
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


class Sources:
    """Where files of the repository are, by their place in it: in a checkout, or where pip put them."""

    def __init__(self, packages: Mapping[str, Path], root: Path | None = None) -> None:
        """Take the folder that holds each import package; with `root`, other files are looked for there."""
        self._packages = packages
        self._root = root

    @classmethod
    def checkout(cls, root: Path) -> Sources:
        """The repository at `root`."""
        return cls({name: root / place for name, place in PACKAGES.items()}, root)

    @classmethod
    def installed(cls) -> Sources:
        """What this process would import; a package that is not installed has no files."""
        specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
        found = {n: spec.submodule_search_locations for n, spec in specs.items() if spec is not None}
        return cls({name: Path(places[0]).parent for name, places in found.items() if places})

    def package(self, name: str) -> Path | None:
        """The folder that holds an import package; None for one that is not ours or not there."""
        return self._packages.get(name)

    def path(self, place: str) -> Path:
        """The file or folder with a place in the repository; it need not exist."""
        for name, folder in self._packages.items():
            if place.startswith(f"{PACKAGES[name]}/{name}"):
                return folder / place.removeprefix(f"{PACKAGES[name]}/")
        return (self._root or Path()) / place

    def place(self, path: Path) -> str:
        """The place in the repository of a file that one of the packages has."""
        for name, folder in self._packages.items():
            if path.is_relative_to(folder / name):
                return f"{PACKAGES[name]}/{path.relative_to(folder).as_posix()}"
        return path.relative_to(self._root or Path()).as_posix()


def source_hash(op: Op, backend: str, root: Path | Sources) -> str:
    """SHA-256, in hex, over every source of the implementation, and over its row.

    Args:
        op: with `backend`, the row.
        backend: its name.
        root: a checkout, or other `Sources`. The same files give the same hash wherever they lie.

    Raises:
        KeyError: there is no such row.
        FileNotFoundError: its entry or a native source is missing.
    """
    entry, sources = ROWS[op, backend], _at(root)
    digest = hashlib.sha256(repr(entry.accepts).encode())
    named = sorted((sources.place(path), path) for path in source_files(entry, sources))
    for place, path in named:
        digest.update(place.encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _at(root: Path | Sources) -> Sources:
    return Sources.checkout(root) if isinstance(root, Path) else root


def source_files(entry: Row, root: Path | Sources) -> list[Path]:
    """Every Python and native source of the row's implementation, sorted."""
    sources = _at(root)
    return sorted({*_python_closure(entry.entry.split(":")[0], sources), *_native(entry, sources)})


def _python_closure(module: str, sources: Sources) -> set[Path]:
    first = _module_file(module, sources)
    if first is None:
        raise FileNotFoundError(f"no source file for module {module}")
    found, waiting = {first}, [first]
    while waiting:
        new = {path for path in _imported(waiting.pop(), sources) if path not in found}
        found |= new
        waiting += new
    return found


def _module_file(module: str, sources: Sources) -> Path | None:
    """The file of one of our modules; None for a name outside our packages or one that is no module."""
    folder = sources.package(module.split(".")[0])
    if folder is None:
        return None
    stem = folder / Path(*module.split("."))
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)


def _imported(path: Path, sources: Sources) -> Iterator[Path]:
    """Files that `path` names in imports. Parent packages do not count: rocade's would pull in everything."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            names = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
        else:
            continue
        for full, outer in names:
            file = _module_file(full, sources) or _module_file(outer, sources)
            if file is not None:
                yield file


def _native(entry: Row, sources: Sources) -> Iterator[Path]:
    """Files named by the row, and the native sources in directories that it names."""
    for name in entry.native:
        place = sources.path(name)
        if not place.exists():
            raise FileNotFoundError(f"row ({entry.op}, {entry.backend}) names {name}, which is not there")
        files = [place] if place.is_file() else place.rglob("*")
        yield from (p for p in files if p == place or (p.is_file() and p.suffix in NATIVE_SUFFIXES))

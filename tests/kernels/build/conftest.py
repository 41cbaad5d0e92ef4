"""Fixtures of the builder's tests: a tree, an empty private cache, and the counting compiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernels.build import trees

from rocade_kernels.build import _store, _toolchain
from rocade_kernels.build._sources import Tree


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and nothing remembered of other tests' compilers and manifests."""
    monkeypatch.setenv("ROCADE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ROCADE_HIPCC", raising=False)
    _toolchain._found.cache_clear()
    _store._manifest.cache_clear()
    yield tmp_path / "cache"
    _toolchain._found.cache_clear()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return trees.make_tree(tmp_path / "tree")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trees.Compiler:
    """The chosen compiler is one that counts."""
    made = trees.Compiler.make(tmp_path / "bin")
    monkeypatch.setenv("ROCADE_HIPCC", str(made.folder / "clang"))
    monkeypatch.setenv("PATH", f"{made.folder}:/usr/bin:/bin")
    return made


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing that compiles for GPUs."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(_toolchain, "ROCM_FOLDERS", ())
    monkeypatch.setattr(_toolchain._cache, "ziglang", lambda *arguments: None)

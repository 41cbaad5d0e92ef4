"""The hash that evidence is bound to follows imports and native sources, and nothing else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.arch_caps.helpers import ROOT

from arch_caps import ROWS, Op, Row, Status, _sources, source_hash
from arch_caps._sources import PACKAGES, Sources, source_files

BACKEND = "packages/rocade/src/rocade/backends/torch"
FILES = {
    f"{BACKEND}/__init__.py": "from rocade.backends.torch import _plan\n",
    f"{BACKEND}/_plan.py": "import torch, arch_caps\ndef f():\n    from rocade._mask import PackedMask\n",
    "packages/rocade/src/rocade/__init__.py": "from rocade import prefill\n",
    "packages/rocade/src/rocade/prefill.py": "",
    "packages/rocade/src/rocade/_mask.py": "import rocade_kernels.checks as checks\n",
    "packages/kernels/src/rocade_kernels/__init__.py": "",
    "packages/kernels/src/rocade_kernels/checks.py": "from rocade.backends.torch import BACKEND\n",
    "packages/kernels/src/rocade_kernels/cpu/a.cpp": "int a;\n",
    "packages/kernels/src/rocade_kernels/cpu/deep/b.hpp": "int b;\n",
    "packages/kernels/src/rocade_kernels/cpu/notes.md": "notes\n",
}
CPU = "packages/kernels/src/rocade_kernels/cpu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small checkout."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def names(row: Row, root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in source_files(row, root)}


def test_imports_are_followed_without_parent_packages(root: Path) -> None:
    assert names(ROWS[Op.CASCADE, "torch"], root) == {
        f"{BACKEND}/__init__.py",
        f"{BACKEND}/_plan.py",
        "packages/rocade/src/rocade/_mask.py",
        "packages/kernels/src/rocade_kernels/checks.py",
    }


def test_native_sources_are_those_the_row_names(root: Path) -> None:
    row = replace(ROWS[Op.CASCADE, "torch"], native=(CPU,))
    assert {f"{CPU}/a.cpp", f"{CPU}/deep/b.hpp"} <= names(row, root)
    assert f"{CPU}/notes.md" not in names(row, root)
    assert f"{CPU}/notes.md" in names(replace(row, native=(f"{CPU}/notes.md",)), root)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (f"{BACKEND}/_plan.py", True),
        ("packages/rocade/src/rocade/_mask.py", True),
        ("packages/kernels/src/rocade_kernels/checks.py", True),
        ("packages/rocade/src/rocade/prefill.py", False),
        ("packages/rocade/src/rocade/__init__.py", False),
    ],
)
def test_an_edit_changes_the_hash_where_it_matters(root: Path, name: str, changes: bool) -> None:
    before = source_hash(Op.CASCADE, "torch", root)
    assert len(before) == 64
    with (root / name).open("a") as file:
        file.write("# edited\n")
    assert (source_hash(Op.CASCADE, "torch", root) != before) is changes


def test_a_row_that_accepts_more_changes_the_hash(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[Op.CASCADE, "torch"]
    before = source_hash(Op.CASCADE, "torch", root)
    wider = replace(row, accepts=replace(row.accepts, mask=row.accepts.kv_layout))
    monkeypatch.setattr(_sources, "ROWS", {(Op.CASCADE, "torch"): wider})
    assert source_hash(Op.CASCADE, "torch", root) != before


def test_what_is_missing_is_an_error(root: Path) -> None:
    row = ROWS[Op.CASCADE, "torch"]
    with pytest.raises(FileNotFoundError, match=r"rocade\.nowhere"):
        source_files(replace(row, entry="rocade.nowhere:X"), root)
    with pytest.raises(FileNotFoundError, match="no/such/folder"):
        source_files(replace(row, native=("no/such/folder",)), root)
    with pytest.raises(KeyError):
        source_hash(Op.CASCADE, "no such backend", root)


def test_built_rows_with_native_code_name_it() -> None:
    for row in ROWS.values():
        if row.status is Status.BUILT and row.native:
            assert any(path.suffix in (".cpp", ".hip") for path in source_files(row, ROOT))


def test_installed_files_hash_as_those_of_the_checkout_do(tmp_path: Path) -> None:
    """Wherever pip puts the packages, a record made there is about the same sources."""
    site = tmp_path / "site-packages"
    for name, place in PACKAGES.items():
        shutil.copytree(ROOT / place / name, site / name, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    installed = Sources(dict.fromkeys(PACKAGES, site))
    for backend in ("torch", "cpu", "hip"):
        assert source_hash(Op.MERGE_STATE, backend, installed) == source_hash(Op.MERGE_STATE, backend, ROOT)
    (site / "rocade_kernels" / "hip" / "args.hpp").write_text("")
    assert source_hash(Op.MERGE_STATE, "hip", installed) != source_hash(Op.MERGE_STATE, "hip", ROOT)
    assert source_hash(Op.MERGE_STATE, "torch", installed) == source_hash(Op.MERGE_STATE, "torch", ROOT)


def test_the_packages_of_this_process_are_found() -> None:
    assert source_hash(Op.CASCADE, "torch", Sources.installed()) == source_hash(Op.CASCADE, "torch", ROOT)

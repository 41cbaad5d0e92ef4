"""The key of a kernel follows every file that it includes, and no other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.kernels.build.trees import AMD, SOURCES

from rocade_kernels._cache import BuildError
from rocade_kernels.build import INSTANCES, Store, toolchain_for
from rocade_kernels.build._compile import TREE, flags
from rocade_kernels.build._sources import Tree

INCLUDED = sorted(set(SOURCES) - {"hip/unused.hpp"})


def test_the_closure_is_transitive(tree: Tree) -> None:
    found = [path.relative_to(tree.root).as_posix() for path in tree.closure("twice")]
    assert found == INCLUDED


@pytest.mark.parametrize("name", INCLUDED)
def test_any_included_file_changes_the_key(tree: Tree, name: str) -> None:
    store = Store(tree, None)
    before = store.key(AMD)
    path = tree.root / name
    path.write_text(path.read_text() + "\n")
    assert store.key(AMD) != before


def test_what_is_not_included_does_not_change_the_key(tree: Tree) -> None:
    before = tree.source_hash("twice")
    (tree.root / "hip/unused.hpp").write_text("#error")
    assert tree.source_hash("twice") == before


def test_the_key_does_not_change_with_the_place_of_the_tree(tree: Tree, tmp_path: Path) -> None:
    tree.root.rename(tmp_path / "moved")
    moved = Tree(tmp_path / "moved").source_hash("twice")
    (tmp_path / "moved").rename(tree.root)
    assert moved == tree.source_hash("twice")


def test_the_key_changes_with_each_choice(tree: Tree) -> None:
    others = (
        AMD._replace(target="gfx950"),
        AMD._replace(dtype="bf16"),
        AMD._replace(head_dim=128),
        AMD._replace(variant="general"),
        AMD._replace(target="sm_90"),
    )
    store = Store(tree, None)
    assert len({store.key(instance) for instance in (AMD, *others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("text", "said"),
    [('#include "absent.hpp"\n', "absent.hpp"), ("#  include MACRO\n", "cannot follow '#include MACRO'")],
)
def test_an_include_that_cannot_be_followed_is_an_error(tree: Tree, text: str, said: str) -> None:
    (tree.root / "hip/deep.hpp").write_text(text)
    with pytest.raises(BuildError, match=said):
        tree.source_hash("twice")


@pytest.mark.parametrize("name", ["hip/other/twice.hip", None])
def test_a_kernel_has_exactly_one_source(tree: Tree, name: str | None) -> None:
    if name:
        (tree.root / name).parent.mkdir()
        (tree.root / name).write_text("")
    else:
        (tree.root / "hip/test/twice.hip").unlink()
    with pytest.raises(BuildError, match=r"'twice' needs exactly one source file twice\.hip"):
        tree.source("twice")


@pytest.mark.parametrize("kernel", sorted({instance.kernel for instance in INSTANCES}))
def test_the_compiler_reads_no_file_of_this_package_outside_the_closure(kernel: str) -> None:
    wanted = set(TREE.closure(kernel))
    for instance in {i.target: i for i in INSTANCES if i.kernel == kernel}.values():
        includes = [f"-I{folder}" for folder in TREE.include_dirs]
        command = [
            *toolchain_for(instance).clang,
            *flags(instance),
            *includes,
            "-E",
            str(TREE.source(kernel)),
        ]
        done = subprocess.run([*command, "-o", "-"], capture_output=True, text=True, check=True)
        named = {Path(name).resolve() for name in re.findall(r'^# \d+ "([^"<]+)"', done.stdout, re.MULTILINE)}
        read = {path for path in named if path.is_relative_to(TREE.root)}
        assert read <= wanted
        assert len(read) > 1

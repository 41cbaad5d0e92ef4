"""Compiling an instance: what comes out, what is read back from it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernels.build.trees import AMD, PTX, SCRATCH

from rocade_kernels._cache import BuildError
from rocade_kernels.build import Code, ImageError, Instance, compile_instance, toolchain_for
from rocade_kernels.build._sources import Tree


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_80", "sm_90"])
def test_compiles_and_reads_back_what_the_kernel_takes(tree: Tree, tmp_path: Path, target: str) -> None:
    instance = AMD._replace(target=target)
    used = compile_instance(instance, toolchain_for(instance), tmp_path / "image", tree)
    assert (used.kernarg_bytes, used.lds_bytes, used.scratch_bytes) == (16, 0, 0)
    if instance.is_ptx:
        assert (used.vgprs, used.agprs, used.sgprs, used.spills) == (None,) * 4
    else:
        assert used.vgprs
        assert used.sgprs
        assert (used.agprs, used.spills) == (0, 0)
    assert Code.of(instance, (tmp_path / "image").read_bytes()).resources == used
    assert [path.name for path in tmp_path.glob(".build-*")] == []


@pytest.mark.parametrize("instance", [AMD, PTX], ids=lambda i: i.target)
def test_choices_reach_the_kernel_as_macros(tree: Tree, tmp_path: Path, instance: Instance) -> None:
    source = tree.root / "hip/test/twice.hip"
    source.write_text(
        "static_assert(ROCADE_DTYPE_FP16 == 1 && ROCADE_HEAD_DIM == 64 && ROCADE_VARIANT_GENERAL == 1);\n"
        + source.read_text()
    )
    made = instance._replace(variant="general")
    compile_instance(made, toolchain_for(made), tmp_path / "image", tree)
    with pytest.raises(BuildError, match="ROCADE_VARIANT_GENERAL"):
        compile_instance(instance, toolchain_for(instance), tmp_path / "image", tree)


@pytest.mark.parametrize("instance", [AMD, PTX], ids=lambda i: i.target)
def test_scratch_memory_is_refused(tree: Tree, tmp_path: Path, instance: Instance) -> None:
    (tree.root / "hip/test/twice.hip").write_text(SCRATCH)
    with pytest.raises(ImageError, match=rf"{instance.name} spills: .* [1-9]\d* bytes of scratch"):
        compile_instance(instance, toolchain_for(instance), tmp_path / "image", tree)
    assert not (tmp_path / "image").exists()


@pytest.mark.parametrize("instance", [AMD, PTX], ids=lambda i: i.target)
def test_local_memory_and_the_largest_block_are_read_back(
    tree: Tree, tmp_path: Path, instance: Instance
) -> None:
    bounds = "launch_bounds(96)" if instance.is_ptx else "amdgpu_flat_work_group_size(1, 96)"
    source = tree.root / "hip/test/twice.hip"
    text = source.read_text().replace(
        "void rocade_twice(TwiceArgs args) {",
        f"__attribute__(({bounds})) void rocade_twice(TwiceArgs args) {{\n"
        "  __attribute__((shared)) static float held[300];\n"
        "  held[index()] = args.data[0]; args.data[1] = held[index() / 2];",
    )
    source.write_text(text)
    used = compile_instance(instance, toolchain_for(instance), tmp_path / "image", tree)
    assert (used.lds_bytes, used.max_block) == (1200, 96)


def test_a_warning_is_an_error_that_quotes_the_compiler(tree: Tree, tmp_path: Path) -> None:
    (tree.root / "hip/deep.hpp").write_text("#define DEEP 2\n#warning from the header\n")
    with pytest.raises(BuildError, match="from the header"):
        compile_instance(AMD, toolchain_for(AMD), tmp_path / "image", tree)


@pytest.mark.parametrize("instance", [AMD, PTX], ids=lambda i: i.target)
def test_the_same_sources_give_the_same_bytes_wherever_they_lie(
    tree: Tree, tmp_path: Path, instance: Instance
) -> None:
    compile_instance(instance, toolchain_for(instance), tmp_path / "one", tree)
    tree.root.rename(tmp_path / "elsewhere")
    (tmp_path / "deeper").mkdir()
    compile_instance(
        instance, toolchain_for(instance), tmp_path / "deeper" / "two", Tree(tmp_path / "elsewhere")
    )
    assert (tmp_path / "one").read_bytes() == (tmp_path / "deeper" / "two").read_bytes()

"""Compiles one instance: HIP to an AMD code object in three steps, or to PTX text in one. No ROCm."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rocade_kernels import _cache
from rocade_kernels.build._resources import Resources, check
from rocade_kernels.build._sources import Tree
from rocade_kernels.build._toolchain import AMD, NVIDIA, Toolchain, toolchain
from rocade_kernels.instances import Instance

TREE = Tree(Path(__file__).resolve().parents[1])

COMMON_FLAGS = (
    "--no-default-config",  # of the system: it is no part of the key
    "-std=c++20",
    "-O3",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-ident",
    "-ffp-contract=fast",
)
# The compilation unit id would be a hash of paths, and builds would differ from folder to folder.
HIP_FLAGS = ("-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-fuse-cuid=none")
# Version 5 is what every ROCm 6 and 7 loads.
AMD_FLAGS = ("-mcode-object-version=5",)
# PTX 8.0 is what every driver since CUDA 12.0 takes; clang's own default is newer than many drivers.
PTX_FLAGS = ("--cuda-feature=+ptx80", "-Wno-unknown-cuda-version")
CUDA_FLAGS = ("-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", *PTX_FLAGS)
ASSEMBLER_FLAGS = ("-x", "assembler", "-target", "amdgcn-amd-amdhsa", *AMD_FLAGS)


def architecture(instance: Instance) -> str:
    """What the compiler has to know for an instance."""
    return NVIDIA if instance.is_ptx else AMD


def toolchain_for(instance: Instance) -> Toolchain:
    """The compiler that would build an instance; `BuildError` when there is none."""
    return toolchain(architecture(instance))


def flags(instance: Instance) -> tuple[str, ...]:
    """Everything that the first step is told besides file names; part of the key."""
    if instance.is_ptx:
        return (*CUDA_FLAGS, f"--cuda-gpu-arch={instance.target}", *COMMON_FLAGS, *instance.defines)
    return (*HIP_FLAGS, f"--offload-arch={instance.target}", *AMD_FLAGS, *COMMON_FLAGS, *instance.defines)


def compile_instance(instance: Instance, compiler: Toolchain, out: Path, tree: Tree = TREE) -> Resources:
    """Compile to `out`, which appears whole or not at all, and read back what it uses.

    Raises:
        BuildError: the compiler failed, or the kernel spills registers or uses scratch memory.
        OSError: a folder cannot be written.
    """
    source = tree.source(instance.kernel)
    includes = [f"-I{folder}" for folder in tree.include_dirs]
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".build-") as folder:
        work = Path(folder)
        text, made = work / "kernel.s", work / "kernel.o"
        _cache.run([*compiler.clang, *flags(instance), *includes, "-S", str(source), "-o", str(text)])
        if instance.is_ptx:
            made = text
        else:
            _assemble(instance, compiler, text, made)
        used = check(made.read_bytes(), instance)
        made.replace(out)
    return used


def _assemble(instance: Instance, compiler: Toolchain, text: Path, made: Path) -> None:
    """Assembly text to a linked code object at `made`. One step would need an lld that clang itself finds."""
    part = made.with_suffix(".part.o")
    cpu = f"-mcpu={instance.target}"
    _cache.run([*compiler.clang, *ASSEMBLER_FLAGS, cpu, "-c", str(text), "-o", str(part)])
    _cache.run([*compiler.lld, "-shared", "--build-id=none", str(part), "-o", str(made)])

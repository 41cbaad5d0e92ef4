"""Which compiler is taken: the chosen one, else the first that is new enough, has a linker and the target."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.kernels.build.trees import AMD, Compiler

from rocade_kernels import _cache
from rocade_kernels._cache import BuildError
from rocade_kernels.build import Store, _toolchain
from rocade_kernels.build._sources import Tree
from rocade_kernels.build._toolchain import AMD as AMDGCN
from rocade_kernels.build._toolchain import NVIDIA, Toolchain, toolchain

TARGETS = "  Registered Targets:\n    amdgcn     - AMD GCN GPUs\n    x86-64     - 64-bit X86\n"


def fake(folder: Path, name: str, version: str = "22.1.8", *, targets: str = TARGETS, more: str = "") -> Path:
    """A script that answers as a clang of this version does."""
    folder.mkdir(exist_ok=True)
    script = folder / name
    script.write_text(
        "#!/bin/sh\ncase $1 in\n"
        f"--version) echo 'AMD clang version {version} (roc)'; echo '{more}';;\n"
        f"--print-targets) echo '{targets}';;\n"
        "-print-prog-name=*) echo ld.lld;;\nesac\n"
    )
    script.chmod(stat.S_IRWXU)
    return script


@pytest.fixture
def folder(tmp_path: Path, no_compiler: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, empty; there is no ziglang."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_the_order_is_rocm_then_clang_then_pypi(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ld.lld", "amdclang++", "hipcc", "clang", "clang-21"):
        fake(folder, name)
    zig = fake(folder, "zig")
    zig.write_text(zig.read_text().replace("case $1 in", "shift; case $1 in"))
    monkeypatch.setattr(_cache, "ziglang", lambda *arguments: (str(zig), *arguments))
    found = [
        Path(item.clang[0]).name for item in _toolchain._found("", str(folder)) if isinstance(item, Toolchain)
    ]
    assert found == ["amdclang++", "hipcc", "clang", "clang-21", "zig"]


def test_old_compilers_and_those_without_a_linker_are_passed_over(folder: Path) -> None:
    fake(folder, "amdclang++", "19.0.0git")
    fake(folder, "hipcc").write_text("#!/bin/sh\nexit 1\n")
    fake(folder, "clang")
    with pytest.raises(BuildError) as caught:
        toolchain(AMDGCN)
    assert "amdclang++: is clang version 19.0.0git; 20 or newer is needed" in str(caught.value)
    assert "hipcc" in str(caught.value)
    assert "clang: has no ld.lld" in str(caught.value)
    _toolchain._found.cache_clear()
    fake(folder, "ld.lld")
    assert toolchain(AMDGCN).clang == (str(folder / "clang"),)


def test_a_compiler_may_speak_in_any_encoding(folder: Path) -> None:
    script = folder / "clang"
    script.write_bytes(b"#!/bin/sh\necho 'Fehler: \xfcbersetzt nicht' >&2\nexit 1\n")
    script.chmod(stat.S_IRWXU)
    with pytest.raises(BuildError, match="bersetzt nicht"):
        _cache.run([str(script)])


def test_a_compiler_without_the_target_is_passed_over(folder: Path) -> None:
    fake(folder, "ld.lld")
    fake(folder, "amdclang++")
    fake(folder, "clang", targets=TARGETS.replace("amdgcn ", "nvptx64"))
    assert toolchain(AMDGCN).clang == (str(folder / "amdclang++"),)
    assert toolchain(NVIDIA).clang == (str(folder / "clang"),)


def test_a_wrapper_gives_way_to_the_clang_that_it_calls(folder: Path, tmp_path: Path) -> None:
    real = fake(tmp_path / "llvm", "clang")
    fake(folder, "ld.lld")
    script = fake(folder, "hipcc", more=f"InstalledDir: {real.parent}")
    script.write_text(script.read_text().replace("echo 'AMD", "echo 'HIP version: 7'; echo 'AMD"))
    found = toolchain(AMDGCN)
    assert found.clang == (str(real),)
    assert found.identity == "AMD clang version 22.1.8 (roc)"


def test_a_linker_with_a_number_belongs_to_the_clang_with_that_number(folder: Path) -> None:
    fake(folder, "clang-21")
    fake(folder, "ld.lld-21")
    assert toolchain(AMDGCN).lld == (str(folder / "ld.lld-21"),)


def test_the_chosen_compiler_is_the_only_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(folder, "ld.lld")
    fake(folder, "clang")
    chosen = fake(folder, "mine", "23.0.0")
    chosen.write_text(chosen.read_text().replace("case $1 in", "shift; case $1 in"))
    monkeypatch.setenv("ROCADE_HIPCC", f"{chosen} --some-flag")
    assert toolchain(AMDGCN).clang == (str(chosen), "--some-flag")
    with pytest.raises(BuildError, match="does not compile for nvptx64"):
        toolchain(NVIDIA)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("'clang -x", "which is no command|no command"),
        ("/nowhere/clang", "No such file"),
        ("true", "is no clang"),
    ],
)
def test_a_choice_that_does_not_work_is_named(
    monkeypatch: pytest.MonkeyPatch, tree: Tree, chosen: str, said: str
) -> None:
    monkeypatch.setenv("ROCADE_HIPCC", chosen)
    with pytest.raises(BuildError, match=said):
        Store(tree, None).code(AMD)


def test_zig_can_be_chosen(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_HIPCC", "zig")
    assert toolchain(AMDGCN).clang == _cache.ziglang("clang")
    assert toolchain(NVIDIA).clang == _cache.ziglang("clang")


def test_a_system_clang_and_ziglang_build_the_same_code(
    compiler: Compiler, tree: Tree, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scripts stand for a system's clang: another path through the linker's search, the same output."""
    system = Store(tree, None).code(AMD)
    monkeypatch.setenv("ROCADE_HIPCC", "zig")
    cache.rename(cache.with_name("old"))
    assert Store(tree, None).code(AMD).sha256 == system.sha256

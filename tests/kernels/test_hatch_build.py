"""The wheel's build hook: which compilers it asks pip for, and which GPU kernels it compiles."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests import needs

from rocade_kernels import _cache, _cpu_build, build
from rocade_kernels.build import _toolchain

FILE = Path(__file__).parents[2] / "packages" / "kernels" / "hatch_build.py"


@pytest.fixture
def hook_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The hook's module; no machine it thinks of has a compiler, until a test says so."""
    needs.module("hatchling")
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("hatch_build_of_kernels", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("ROCADE_CXX", "ROCADE_HIPCC", "ROCADE_BUILD_TARGETS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(_toolchain, "ROCM_FOLDERS", ())
    monkeypatch.setattr(_cache, "ziglang", lambda *arguments: None)
    _toolchain._found.cache_clear()
    return module


class App:
    """Collects what the hook shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display_info(self, text: str) -> None:
        self.shown.append(text)


def hook(module: ModuleType, app: App | None = None) -> Any:  # noqa: ANN401  the class is in the module
    return module.NativeCodeHook(str(FILE.parent), {}, None, None, str(FILE.parent), "wheel", app)


def test_a_machine_with_only_python_gets_a_compiler(hook_module: ModuleType) -> None:
    assert hook(hook_module).dependencies() == [hook_module.ZIGLANG]


@pytest.mark.parametrize(
    ("cxx", "hipcc", "targets", "wanted"),
    [
        ("/usr/bin/g++", "", "", True),  # no clang for the GPU kernels
        ("/usr/bin/g++", "", "none", False),
        ("/usr/bin/g++", "/opt/clang", "", False),
        ("", "/opt/clang", "", True),  # no compiler for the CPU library
        ("zig", "/opt/clang", "", True),
        ("/usr/bin/g++", "zig", "", True),
    ],
)
def test_what_is_asked_of_pip(
    hook_module: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    cxx: str,
    hipcc: str,
    targets: str,
    wanted: bool,
) -> None:
    monkeypatch.setenv("ROCADE_CXX", cxx)
    monkeypatch.setenv("ROCADE_HIPCC", hipcc)
    monkeypatch.setenv("ROCADE_BUILD_TARGETS", targets)
    assert bool(hook(hook_module).dependencies()) == wanted


def test_a_target_that_does_not_exist_is_named(
    hook_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCADE_CXX", "/usr/bin/g++")
    monkeypatch.setenv("ROCADE_BUILD_TARGETS", "gfx942,gfx1")
    with pytest.raises(ValueError, match=r"ROCADE_BUILD_TARGETS names gfx1; there are gfx942, gfx950, sm_80"):
        hook(hook_module).dependencies()


@pytest.fixture
def built(hook_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[build.Instance]]:
    """The hook compiles nothing: the CPU library is said to be there, and the lists of instances are kept."""
    lists: list[list[build.Instance]] = []

    def build_all(store: build.Store, instances: list[build.Instance]) -> dict[build.Instance, build.Code]:
        lists.append(instances)
        return {}

    monkeypatch.setattr(_cpu_build, "build", lambda place: _cpu_build.Compiler(("g++",)))
    monkeypatch.setattr(hook_module.build, "build_all", build_all)
    return lists


@pytest.mark.parametrize("targets", ["", "gfx942", "none"])
def test_a_wheel_gets_the_instances_of_its_targets_and_a_manifest(
    hook_module: ModuleType,
    built: list[list[build.Instance]],
    monkeypatch: pytest.MonkeyPatch,
    targets: str,
) -> None:
    monkeypatch.setenv("ROCADE_BUILD_TARGETS", targets)
    made = hook(hook_module, App())
    data: dict[str, Any] = {"artifacts": [], "force_include": {}}
    made.initialize("standard", data)
    assert built == [[i for i in build.INSTANCES if targets in ("", i.target)]]
    assert list(data["force_include"].values()) == ["rocade_kernels/lib/hip/manifest.json"]
    assert data["tag"].startswith("py3-none-linux_")
    (path,) = map(Path, data["force_include"])
    assert path.is_file()
    made.finalize("standard", data, "")
    assert not path.exists()


def test_an_editable_install_says_that_it_builds_no_kernels(
    hook_module: ModuleType, built: list[list[build.Instance]]
) -> None:
    app = App()
    made = hook(hook_module, app)
    data: dict[str, Any] = {"artifacts": [], "force_include": {}}
    made.initialize("editable", data)
    made.finalize("editable", data, "")
    assert built == []
    assert "GPU kernels are not built for an editable install" in app.shown[-1]

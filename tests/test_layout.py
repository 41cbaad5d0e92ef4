"""The repository as a whole: names, versions, licences and markers that no single package tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTIONS = {
    "arch_caps": "arch_caps",
    "packages/emulator": "rocade_emulator",
    "packages/kernels": "rocade_kernels",
    "packages/rocade": "rocade",
}
# What users import. Every other module of `rocade` is private and starts with an underscore.
PUBLIC = {
    "__init__",
    "__main__",
    "backends",
    "bench",
    "cascade",
    "cli",
    "conformance",
    "decode",
    "demo",
    "flashinfer",
    "page",
    "prefill",
    "prefix",
    "quantization",
}


def _project(place: str) -> dict[str, object]:
    return tomllib.loads((ROOT / place / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_only_public_modules_have_names_without_an_underscore() -> None:
    package = ROOT / "packages" / "rocade" / "src" / "rocade"
    modules = {path.stem for path in package.glob("*.py")}
    modules |= {path.parent.name for path in package.glob("*/__init__.py")}
    assert {name for name in modules if not name.startswith("_") or name.startswith("__")} == PUBLIC


@pytest.mark.parametrize("place", DISTRIBUTIONS)
def test_distribution_ships_types_and_the_licence(place: str) -> None:
    assert (ROOT / place / "src" / DISTRIBUTIONS[place] / "py.typed").is_file()
    assert (ROOT / place / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_versions_agree_and_each_is_written_once() -> None:
    found = {}
    for place, package in DISTRIBUTIONS.items():
        assert _project(place)["dynamic"] == ["version"]
        namespace: dict[str, str] = {}
        exec((ROOT / place / "src" / package / "_version.py").read_text(encoding="utf-8"), namespace)
        found[place] = namespace["__version__"]
    assert len(set(found.values())) == 1, found


def test_torch_is_wide_in_metadata_and_pinned_for_development() -> None:
    assert "torch>=2.8" in _project("packages/rocade")["dependencies"]  # type: ignore[operator]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in pins if not line.startswith("#")] == ["torch==2.13.0"]


def test_capability_table_needs_nothing_but_python() -> None:
    assert _project("arch_caps")["dependencies"] == []


def test_every_test_folder_mirrors_a_distribution() -> None:
    folders = {
        path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders <= {"arch_caps", "emulator", "kernels", "rocade", "scripts"}

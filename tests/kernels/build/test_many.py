"""Building many: all are tried, failures are told of together, and a wheel's files are found by the store."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.kernels.build.trees import AMD, PTX, Compiler

from rocade_kernels import _settings
from rocade_kernels._cache import BuildError
from rocade_kernels.build import Store, _cli, _progress, build_all, write_shipped
from rocade_kernels.build._progress import Progress
from rocade_kernels.build._sources import Tree

BROKEN = AMD._replace(dtype="bf16")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_all_are_built_and_a_bar_is_drawn(
    tree: Tree, compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build_all(Store(tree, None), [PTX, AMD], jobs=2)
    assert list(made) == [PTX, AMD]
    assert all(code.instance == instance for instance, code in made.items())
    assert "2/2" in capsys.readouterr().err


def test_failures_are_told_of_after_all_are_tried(tree: Tree, compiler: Compiler) -> None:
    source = tree.root / "hip/test/twice.hip"
    source.write_text(source.read_text() + "\n#ifdef ROCADE_DTYPE_BF16\n#error no bf16\n#endif\n")
    with pytest.raises(
        BuildError, match=rf"1 of 3 GPU kernels could not be built\.\n\n{BROKEN.name}(.|\n)*no bf16"
    ):
        build_all(Store(tree, None), [BROKEN, AMD, PTX], jobs=1)
    assert compiler.compilations == 3


def test_what_a_wheel_holds(tree: Tree, tmp_path: Path, compiler: Compiler) -> None:
    store = Store(tree, None)
    files = write_shipped(store, build_all(store, [AMD, PTX]).values(), tmp_path)
    assert set(files) == {"manifest.json", f"{AMD.name}.code", f"{PTX.name}.code"}
    listed = json.loads(files["manifest.json"].read_text())["objects"]
    assert listed[AMD.name] == {"key": store.key(AMD), "sha256": store.code(AMD).sha256}
    assert files[f"{AMD.name}.code"].stat().st_size < len(store.code(AMD).image) / 2  # compressed
    assert Store(tree, tmp_path).code(AMD) == store.code(AMD)


def test_a_terminal_gets_one_line_that_is_redrawn() -> None:
    stream = Terminal()
    with Progress(2, "kernels", stream) as progress:
        progress.step("a")
        progress.step("b")
    first, second = stream.getvalue().split("\r")[1:]
    assert "[############............]" in first
    assert "1/2" in first
    assert second.rstrip(" \n").endswith("b")
    assert stream.getvalue().count("\n") == 1


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 1.0, 5.0, 5.0, 6.0, 7.0, 7.0])
    monkeypatch.setattr(_progress.time, "monotonic", lambda: next(seconds))
    stream = io.StringIO()
    with Progress(4, "kernels", stream) as progress:
        for name in "abcd":
            progress.step(name)
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["b", "d"]


@pytest.fixture
def instances(tree: Tree, monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> None:
    """The command line knows the test's tree and its instances only."""
    monkeypatch.setattr(_cli, "INSTANCES", (AMD, PTX))
    monkeypatch.setattr(_cli, "Store", lambda: Store(tree, None))


def test_prebuilding(instances: None, compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main(["build", "--target", "gfx942", "--jobs", "1"]) == 0
    assert compiler.compilations == 1
    assert "1 GPU kernels are in the cache" in capsys.readouterr().out
    assert _cli.main(["build"]) == 0
    assert compiler.compilations == 2


def test_listing_builds_nothing(
    instances: None, compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.main(["build", "--list", "--kernel", "twice"]) == 0
    assert capsys.readouterr().out.split() == [AMD.name, PTX.name]
    assert compiler.compilations == 0


def test_the_table_of_resources(instances: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main(["info"]) == 0
    head, amd, ptx = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[:2] == ["instance", "kernarg_bytes"]
    assert dict(zip(head, amd, strict=True))["vgprs"].isdigit()
    assert dict(zip(head, ptx, strict=True))["vgprs"] == "-"
    assert dict(zip(head, ptx, strict=True))["kernarg_bytes"] == "16"


@pytest.mark.parametrize("option", ["--target", "--kernel"])
def test_a_name_that_is_not_there(instances: None, capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert _cli.main(["build", option, "gfx1"]) == 1
    assert "no instance of gfx1; there are " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "targets"),
    [("", None), ("none", set()), ("gfx942", {"gfx942"}), (" gfx942, sm_90,", {"gfx942", "sm_90"})],
)
def test_targets_of_a_wheel(monkeypatch: pytest.MonkeyPatch, value: str, targets: set[str] | None) -> None:
    monkeypatch.setenv("ROCADE_BUILD_TARGETS", value)
    assert _settings.build_targets() == targets

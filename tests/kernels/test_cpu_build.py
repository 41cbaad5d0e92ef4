"""The builder: one build for many processes, none left half done, and errors that say what to do.

A stand-in compiler takes the place of the real one: it logs its calls, is slow if asked, and "links" by
copying the library that is already there. Every other test needs a real one, and so does the last one here.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import needs

from rocade_kernels import _cpu_build, _native, _settings
from rocade_kernels._cache import BuildError

STAND_IN = """\
import shutil, sys, time
from pathlib import Path
here = Path(__file__).parent
out = Path(sys.argv[sys.argv.index("-o") + 1])
linking = "-shared" in sys.argv
with (here / "calls").open("a") as log:
    log.write("link\\n" if linking else "compile\\n")
time.sleep(float((here / "seconds").read_text()))
if linking:
    shutil.copy((here / "library").read_text(), out)
else:
    out.write_text("object")
"""


@pytest.fixture
def real_library() -> Path:
    if _native.library_or_none() is None:
        pytest.skip("no native library, and no compiler to build it")
    return Path(_native.library()._name)


@pytest.fixture
def stand_in(tmp_path: Path, real_library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stand-in compiler; the cache is empty and beside it."""
    folder = tmp_path / "compiler"
    folder.mkdir()
    (folder / "cxx.py").write_text(STAND_IN)
    (folder / "library").write_text(str(real_library))
    (folder / "seconds").write_text("0")
    monkeypatch.setenv("ROCADE_CXX", f"{sys.executable} {folder / 'cxx.py'}")
    monkeypatch.setenv("ROCADE_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def calls(stand_in: Path) -> list[str]:
    log = stand_in / "calls"
    return log.read_text().split() if log.exists() else []


def build_in_process() -> subprocess.Popen[str]:
    load = "_native.load(_cpu_build.cached_library()); print('loaded')"
    code = f"from rocade_kernels import _cpu_build, _native; {load}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )


def test_built_once_and_logged_in_one_line(stand_in: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="rocade_kernels"):
        first, second = _cpu_build.cached_library(), _cpu_build.cached_library()
    assert first == second
    assert calls(stand_in).count("link") == 1
    assert len(caplog.records) == 1
    assert str(first) in caplog.text
    assert sorted(p.name for p in first.parent.iterdir()) == ["build.lock", first.name]  # no litter


def test_many_processes_build_once(stand_in: Path) -> None:
    (stand_in / "seconds").write_text("0.05")
    processes = [build_in_process() for _ in range(6)]
    assert [p.communicate(timeout=120)[0] for p in processes] == ["loaded\n"] * 6
    assert calls(stand_in).count("link") == 1


def test_a_killed_build_leaves_nothing_that_loads_and_no_lock(stand_in: Path) -> None:
    (stand_in / "seconds").write_text("30")
    process = build_in_process()
    while not calls(stand_in):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    cache = Path(os.environ["ROCADE_CACHE_DIR"])
    assert not list(cache.rglob("*.so"))
    (stand_in / "seconds").write_text("0")
    _native.load(_cpu_build.cached_library())


@pytest.mark.parametrize(
    ("place", "mode", "refused"), [("", 0o777, True), ("native", 0o770, True), ("", 0o775, False)]
)
def test_a_cache_others_can_write_to_is_refused(stand_in: Path, place: str, mode: int, refused: bool) -> None:
    folder = Path(os.environ["ROCADE_CACHE_DIR"], place)
    folder.mkdir(parents=True)
    folder.chmod(mode)
    if refused:
        with pytest.raises(BuildError, match=r"writable by others.*ROCADE_CACHE_DIR"):
            _cpu_build.cached_library()
    assert calls(stand_in) == []
    if not refused:
        assert _cpu_build.cached_library().parent.stat().st_mode & 0o077 == 0


def test_a_cache_that_cannot_be_made(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROCADE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(BuildError, match=r"cache folder .* cannot be used"):
        _cpu_build.cached_library()


def test_a_cache_that_cannot_be_made_is_no_missing_compiler(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROCADE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(BuildError) as caught:
        _cpu_build.cached_library()
    assert "no compiler was found" not in str(caught.value)


def test_without_a_home_the_error_names_the_setting(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id that the system does not know, as containers are started with."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ROCADE_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(BuildError, match=r"home directory. Set ROCADE_CACHE_DIR"):
        _cpu_build.cached_library()


def test_a_compiler_that_is_no_command_is_named(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_CXX", "'g++ -O1")
    with pytest.raises(BuildError, match=r"ROCADE_CXX is .*, which is no command"):
        _cpu_build.cached_library()


def test_the_cache_follows_a_tilde_and_no_relative_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("ROCADE_CACHE_DIR", "~/libraries")
    assert _settings.cache_dir() == Path("/home/somebody/libraries")
    monkeypatch.delenv("ROCADE_CACHE_DIR")
    for base in ("", "here", "./here"):  # a relative one is to be ignored, says its specification
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert _settings.cache_dir() == Path("/home/somebody/.cache/rocade")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert _settings.cache_dir() == Path("/var/cache/rocade")


@pytest.mark.skipif(os.getuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_cache(stand_in: Path) -> None:
    cache = Path(os.environ["ROCADE_CACHE_DIR"])
    cache.mkdir()
    cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(BuildError, match="cannot be used"):
        _cpu_build.cached_library()


def test_without_a_compiler_the_error_says_both_ways_out(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCADE_CXX")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(_cpu_build, "zig", lambda: None)
    with pytest.raises(BuildError) as caught:
        _cpu_build.cached_library()
    text = str(caught.value)
    assert "wheel" in text
    assert "pip install 'ziglang>=" in text
    assert "no compiler was found" in text


def test_a_failing_compiler_is_quoted(stand_in: Path) -> None:
    (stand_in / "cxx.py").write_text("raise SystemExit('no such flag')")
    with pytest.raises(BuildError, match="no such flag"):
        _cpu_build.cached_library()


def test_the_next_compiler_is_tried(stand_in: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good = _cpu_build.Compiler((sys.executable, str(stand_in / "cxx.py")))
    monkeypatch.setattr(_cpu_build, "compilers", lambda: iter([_cpu_build.Compiler(("/nowhere/g++",)), good]))
    assert _cpu_build.build(tmp_path / "lib.so") == good


def test_every_source_and_flag_is_in_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []
    for path in (path for folder in _cpu_build.FOLDERS for path in (_cpu_build.SOURCES / folder).iterdir()):
        copies.append(tmp_path / path.relative_to(_cpu_build.SOURCES))
        copies[-1].parent.mkdir(parents=True, exist_ok=True)
        copies[-1].write_bytes(path.read_bytes())
    before = _cpu_build.source_hash(tmp_path)
    assert before == _cpu_build.source_hash()
    seen = {before}
    for path in copies:
        path.write_bytes(path.read_bytes() + b"\n")
        seen.add(_cpu_build.source_hash(tmp_path))
    assert len(seen) == 1 + len(copies)
    monkeypatch.setattr(_cpu_build, "FLAGS", (*_cpu_build.FLAGS, "-g"))
    assert _cpu_build.source_hash(tmp_path) not in seen


def test_a_shipped_library_of_other_sources_is_not_used(
    real_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cpu_build, "SHIPPED", real_library)
    assert _native._shipped() is not None
    monkeypatch.setattr(_cpu_build, "source_hash", lambda: "0" * 16)
    assert _native._shipped() is None
    (tmp_path / "torn.so").write_bytes(b"\x7fELF")
    monkeypatch.setattr(_cpu_build, "SHIPPED", tmp_path / "torn.so")
    assert _native._shipped() is None


@needs.unless(_cpu_build.zig() is not None, "needs the package ziglang")
def test_zig_builds_a_library_for_an_old_c_library(tmp_path: Path) -> None:
    compiler = _cpu_build.zig()
    assert compiler is not None
    target = tmp_path / "lib.so"
    _cpu_build.compile_library(target, compiler, extra=("-O1",))  # half the time of -O3
    lib = _native.load(target)
    assert lib.rk_source_hash().decode() == _cpu_build.source_hash()

"""Building the core: what makes an object stale, which variant and compiler are chosen, refused folders."""

from __future__ import annotations

import ctypes
import multiprocessing
import shutil
from pathlib import Path

import pytest

from rocade_emulator import _build, _settings, _sources

FILES = {
    "api.cpp": '#include "answer.hpp"\n#include "row.inc"\nVISIBLE int answer() { return kAnswer + ROW; }\n',
    "answer.hpp": "inline constexpr int kAnswer = 40;\n",
    "row.inc": '#define ROW 2\n#define VISIBLE extern "C" __attribute__((visibility("default")))\n',
    "exec/other.cpp": '#include "deep.hpp"\nint other() { return kDeep; }\n',
    "exec/deep.hpp": "inline constexpr int kDeep = 1;\n",
}


@pytest.fixture
def core(tmp_path: Path) -> Path:
    """A core of two files."""
    folder = tmp_path / "core"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def any_compiler() -> _build.Compiler:
    found = next(iter(_build.compilers()), None)
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def build(core: Path, name: str = "lib.so") -> int:
    target = core.parent / name
    _build.compile_library(target, any_compiler(), "plain", core.parent / "objects", core=core)
    return int(ctypes.CDLL(str(target)).answer())


def test_only_what_changed_is_compiled_again(core: Path) -> None:
    assert build(core) == 42
    objects = core.parent / "objects"
    first = set(objects.glob("*.o"))
    assert len(first) == 2
    (core / "row.inc").write_text(FILES["row.inc"].replace("2", "3"))
    assert build(core, "second.so") == 43
    assert {path.stem.split("-")[0] for path in set(objects.glob("*.o")) - first} == {"api"}
    assert not list(objects.glob(".object-*")), "nothing unfinished stays behind"


def test_hashes_follow_contents_not_places(core: Path, tmp_path: Path) -> None:
    before = _sources.source_hash(core)
    unit = core / "exec/other.cpp"
    one = _sources.object_hash(unit, ["c++"], core)
    assert _sources.object_hash(unit, ["c++", "-g"], core) != one
    copy = tmp_path / "elsewhere"
    shutil.copytree(core, copy)
    assert _sources.source_hash(copy) == before
    assert _sources.object_hash(copy / "exec/other.cpp", ["c++"], copy) == one
    (copy / "exec/deep.hpp").write_text("inline constexpr int kDeep = 2;\n")
    assert _sources.source_hash(copy) != before
    assert _sources.object_hash(copy / "exec/other.cpp", ["c++"], copy) != one


def test_every_include_of_the_core_is_found() -> None:
    """An include that the scan misses would leave stale objects behind."""
    for unit in _sources.units():
        for path in _sources._reached(unit, _sources.CORE):
            names = [match.decode() for match in _sources._INCLUDE.findall(path.read_bytes())]
            assert len(_sources._included(path, 0, _sources.CORE)) == len(names), path


def test_a_compiler_error_is_quoted_in_short(core: Path) -> None:
    (core / "api.cpp").write_text("int broken( {\n" * 2000)
    with pytest.raises(_build.BuildError, match=r"api\.cpp") as caught:
        build(core)
    assert len(str(caught.value)) < _build.MESSAGE_CHARS + 2000


def test_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_build, "is_x86", lambda: True)
    monkeypatch.delenv("ROCADE_EMULATOR_ISA", raising=False)
    monkeypatch.setattr(_build, "_cpu_flags", lambda: _build._V3_CPU_FLAGS | {"sse2"})
    assert _build.isa() == "v3"
    monkeypatch.setattr(_build, "_cpu_flags", lambda: {"avx2", "fma"})
    assert _build.isa() == "plain"
    monkeypatch.setenv("ROCADE_EMULATOR_ISA", "v3")
    assert _build.isa() == "v3"
    monkeypatch.setenv("ROCADE_EMULATOR_ISA", "v9")
    with pytest.raises(ValueError, match="v9 is none of plain, v3"):
        _build.isa()


def test_choosing_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_EMULATOR_CXX", "ccache g++-12 -g")
    assert [c.command for c in _build.compilers()] == [("ccache", "g++-12", "-g")]
    monkeypatch.setenv("ROCADE_EMULATOR_CXX", "zig")
    found = list(_build.compilers())
    assert found == [_build.zig()]
    assert found[0].spell(["-O3", "-march=x86-64-v3"]) == ["-O3", "-mcpu=x86_64_v3"]


def test_folders_that_others_can_write_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    monkeypatch.setenv("ROCADE_EMULATOR_CACHE_DIR", str(folder))
    with pytest.raises(_build.BuildError, match="writable by others"):
        _build.cached_library("plain")
    folder.chmod(0o700)
    _build.check_private(folder)


def test_no_compiler_says_how_to_get_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_EMULATOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ROCADE_EMULATOR_CXX", "/nowhere/c++")
    with pytest.raises(_build.BuildError, match=r"pip install 'ziglang>="):
        _build.cached_library("plain")


def _count_builds(folder: str, queue: multiprocessing.Queue[int]) -> None:
    import os

    os.environ["ROCADE_EMULATOR_CACHE_DIR"] = folder
    made = []

    def fake(target: Path, isa_name: str, objects: Path) -> _build.Compiler:
        made.append(1)
        target.write_bytes(b"library")
        return _build.Compiler(("fake",))

    _build.build = fake
    assert _build.cached_library("plain").read_bytes() == b"library"
    queue.put(len(made))


def test_many_processes_build_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[int] = context.Queue()
    workers = [context.Process(target=_count_builds, args=(str(tmp_path / "cache"), queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    counts = [queue.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert sorted(counts) == [0, 0, 0, 1]


def test_every_setting_is_listed() -> None:
    found = {value for value in vars(_settings).values() if isinstance(value, _settings.Setting)}
    assert set(_settings.SETTINGS) == found
    assert all(setting.name.startswith("ROCADE_EMULATOR_") for setting in found)

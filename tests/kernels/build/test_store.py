"""Where code comes from: the wheel, the cache or a compiler; and every way in which these can be broken."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kernels.build.trees import AMD, PTX, Compiler, build_in_process

from rocade_kernels import _cache
from rocade_kernels._cache import BuildError
from rocade_kernels.build import Code, Instance, Store, _compile, _store, build_all, write_shipped
from rocade_kernels.build._packed import pack
from rocade_kernels.build._sources import Tree

Damage = Callable[[Path], object]


@pytest.fixture
def store(tree: Tree) -> Store:
    """Nothing shipped."""
    return Store(tree, None)


@pytest.fixture
def shipped(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a wheel's files for two targets; they were made in another cache than the one in force."""
    (tmp_path / "wheel").mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("ROCADE_CACHE_DIR", str(tmp_path / "release"))
        made = build_all(Store(tree, None), [AMD, AMD._replace(target="gfx950"), PTX])
    write_shipped(Store(tree, None), made.values(), tmp_path / "wheel")
    return Store(tree, tmp_path / "wheel")


def only_file(cache: Path) -> Path:
    (path,) = (cache / "hip").glob("*.code")
    return path


def test_built_once_and_logged_in_one_line(
    store: Store, compiler: Compiler, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = store.code(AMD), store.code(AMD)
    assert first == second
    assert compiler.compilations == 1
    assert len(caplog.records) == 1
    assert f"built {AMD.name} with {compiler.folder / 'clang'} (clang version" in caplog.text
    names = sorted(path.name for path in (cache / "hip").iterdir())
    assert names == sorted([only_file(cache).name, f"{AMD.name}.lock"])  # no litter
    assert (cache / "hip").stat().st_mode & 0o077 == 0


def test_ptx_and_code_objects_of_one_kernel_are_two_things(store: Store) -> None:
    assert store.code(AMD).image[:4] == b"\x7fELF"
    assert b".target sm_90" in store.code(PTX).image


def test_many_processes_build_once(store: Store, compiler: Compiler) -> None:
    compiler.slow(0.5)
    processes = [build_in_process(store.tree, AMD) for _ in range(4)]
    said = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert len({lines[-1] for lines in said}) == 1
    assert said[0][-1].startswith("sha256 ")
    assert sum(line.startswith("built") for lines in said for line in lines) == 1
    assert compiler.compilations == 1


def test_many_threads_build_once(store: Store, compiler: Compiler) -> None:
    compiler.slow(0.2)
    build_all(store, [AMD] * 6, jobs=6)
    assert compiler.compilations == 1


def test_different_instances_are_built_at_the_same_time(store: Store, compiler: Compiler) -> None:
    compiler.slow(0.7)
    began = time.monotonic()
    build_all(store, [AMD, AMD._replace(head_dim=128), AMD._replace(dtype="bf16"), PTX], jobs=4)
    assert compiler.compilations == 4
    assert time.monotonic() - began < 4 * 0.7 + 1.5  # one after the other, they sleep 2.8 s and compile, too


def test_a_killed_build_leaves_nothing_that_is_used_and_no_lock(
    store: Store, compiler: Compiler, cache: Path
) -> None:
    compiler.slow(60)
    process = build_in_process(store.tree, AMD)
    while not compiler.compilations:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert not list((cache / "hip").glob("*.code"))
    compiler.slow(0)
    began = time.monotonic()
    store.code(AMD)
    assert time.monotonic() - began < 30
    assert only_file(cache).exists()


def test_a_process_killed_while_it_writes_leaves_no_file_that_is_read(
    store: Store, compiler: Compiler, cache: Path
) -> None:
    made = store.code(AMD)
    half = (cache / "hip") / f"{_cache.UNFINISHED}abc"
    half.write_bytes(only_file(cache).read_bytes()[:100])
    only_file(cache).unlink()
    assert store.code(AMD) == made
    assert compiler.compilations == 2


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Damage] = {
    "one bit": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "header only": lambda path: path.write_bytes(path.read_bytes().split(b"\n")[0]),
    "empty": lambda path: path.write_bytes(b""),
    "another hash": lambda path: path.write_bytes(path.read_bytes().replace(b"-1 ", b"-1 0", 1)),
    "no such format": lambda path: path.write_bytes(b"\x7fELF" + path.read_bytes()),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_code_in_the_cache_is_told_of_and_built_again(
    store: Store, compiler: Compiler, cache: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    made = store.code(AMD)
    damage(only_file(cache))
    caplog.clear()
    assert store.code(AMD) == made
    assert compiler.compilations == 2
    assert f"{only_file(cache)} is not used: " in caplog.records[0].getMessage()
    if damage is not DAMAGES["a folder"]:  # which a file cannot replace
        caplog.clear()
        assert store.code(AMD) == made
        assert not caplog.records


def test_code_of_another_target_under_this_name_is_refused(
    store: Store, compiler: Compiler, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = store.code(AMD)
    place = only_file(cache)
    foreign = store.code(AMD._replace(target="gfx950"))
    (path,) = (cache / "hip").glob(f"{foreign.instance.name}-*.code")
    path.replace(place)
    assert store.code(AMD) == made
    assert "not for gfx942" in caplog.text
    assert compiler.compilations == 3


@pytest.mark.parametrize("change", ["flags", "compiler", "header"])
def test_a_new_key_means_a_new_build(
    store: Store, compiler: Compiler, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    store.code(AMD)
    if change == "flags":
        monkeypatch.setattr(_compile, "COMMON_FLAGS", (*_compile.COMMON_FLAGS, "-DMORE"))
    elif change == "header":
        (store.tree.root / "hip/deep.hpp").write_text("#define DEEP 3\n")
    else:
        script = compiler.folder / "clang"
        version = 'if [ "$1" = --version ]; then echo "other clang version 22.9.9"; exit; fi'
        script.write_text(script.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{version}\n"))
        monkeypatch.setenv("PATH", os.environ["PATH"] + ":/nowhere")  # compilers are looked for once a path
    store.code(AMD)
    assert compiler.compilations == 2
    store.code(AMD)
    assert compiler.compilations == 2


@pytest.mark.parametrize(
    ("place", "mode", "refused"),
    [("", 0o777, True), ("hip", 0o770, True), ("hip", 0o702, True), ("", 0o775, False)],
)
def test_a_cache_that_others_can_write_is_refused(
    store: Store, compiler: Compiler, cache: Path, place: str, mode: int, refused: bool
) -> None:
    (cache / place).mkdir(parents=True)
    (cache / place).chmod(mode)
    if refused:
        with pytest.raises(BuildError, match=r"writable by others.*ROCADE_CACHE_DIR"):
            store.code(AMD)
        assert compiler.compilations == 0
    else:
        store.code(AMD)


def test_shipped_code_needs_no_cache_and_no_compiler(shipped: Store, no_compiler: None, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    assert shipped.code(AMD).image[:4] == b"\x7fELF"
    assert shipped.code(PTX).resources.kernarg_bytes == 16
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_shipped_code_is_told_of_and_built(
    shipped: Store, compiler: Compiler, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    made = shipped.code(AMD)
    assert shipped.shipped
    path = shipped.shipped / f"{AMD.name}.code"
    damage(path)
    assert shipped.code(AMD) == made
    assert compiler.compilations == 1
    assert f"{path} is not used: " in caplog.text


def test_a_whole_file_that_is_not_the_manifests_is_refused(
    shipped: Store, compiler: Compiler, tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    """It is right in itself: of this kernel and target, with its own hash. The manifest knows another."""
    assert shipped.shipped
    (tree.root / "hip/deep.hpp").write_text("#define DEEP 3\n")
    other = Store(tree, None).code(AMD)
    (tree.root / "hip/deep.hpp").write_text("#define DEEP 2\n")
    (shipped.shipped / f"{AMD.name}.code").write_bytes(pack(other))
    assert shipped.code(AMD) != other
    assert "does not have the SHA-256" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"objects": [1]}', f'{{"objects": {{"{AMD.name}": 1}}}}'])
def test_a_damaged_manifest_is_told_of_and_the_code_built(
    shipped: Store, compiler: Compiler, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert shipped.shipped
    (shipped.shipped / "manifest.json").write_text(text)
    shipped.code(AMD)
    assert compiler.compilations == 1
    assert "manifest.json cannot be read" in caplog.text


def test_shipped_code_of_other_sources_is_not_used(shipped: Store, compiler: Compiler) -> None:
    before = shipped.code(AMD)
    (shipped.tree.root / "hip/deep.hpp").write_text("#define DEEP 3\n")
    assert shipped.code(AMD).sha256 != before.sha256
    assert compiler.compilations == 1


def test_without_a_compiler_the_error_names_the_instance_and_both_ways(
    store: Store, no_compiler: None
) -> None:
    with pytest.raises(BuildError) as caught:
        store.code(AMD)
    text = str(caught.value)
    assert AMD.name in text
    assert "install a wheel of rocade-kernels that holds it" in text
    assert "pip install 'ziglang>=" in text
    assert "ROCADE_HIPCC" in text
    assert "no compiler was found" in text


@pytest.mark.parametrize("reason", ["damaged", "not held", "other sources"])
def test_without_a_compiler_the_error_says_why_the_wheel_does_not_do(
    shipped: Store, no_compiler: None, reason: str
) -> None:
    assert shipped.shipped
    wanted, said = AMD, "the installed wheel does not hold it"
    if reason == "damaged":
        flip(shipped.shipped / f"{AMD.name}.code")
        said = f"{AMD.name}.code is not used: "
    elif reason == "not held":
        wanted = AMD._replace(head_dim=128)
    else:
        (shipped.tree.root / "hip/deep.hpp").write_text("#define DEEP 3\n")
        said = "other sources"
    with pytest.raises(BuildError, match=said):
        shipped.code(wanted)


def test_without_a_compiler_what_an_earlier_one_built_is_used(
    store: Store, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    made = store.code(AMD)
    request.getfixturevalue("no_compiler")
    assert store.code(AMD) == made


def test_a_kernel_that_does_not_compile_is_quoted(store: Store) -> None:
    (store.tree.root / "hip/deep.hpp").write_text("#error broken header\n")
    with pytest.raises(BuildError, match=rf"{AMD.name} is missing(.|\n)*broken header"):
        store.code(AMD)


def raising(number: int) -> Callable[..., None]:
    def fail(*arguments: object, **named: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("boundary", ["mkdir", "lock", "temporary file", "write"])
def test_a_cache_that_cannot_be_written_does_not_stop_the_build(
    store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch, number: int, boundary: str
) -> None:
    if boundary == "mkdir":
        monkeypatch.setattr(_cache, "private_folder", raising(number))
    elif boundary == "lock":
        monkeypatch.setattr(_cache, "locked", raising(number))
    elif boundary == "temporary file":
        monkeypatch.setattr(_cache.tempfile, "mkstemp", raising(number))
    else:
        monkeypatch.setattr(_cache.os, "fdopen", raising(number))
    assert store.code(AMD).image[:4] == b"\x7fELF"
    kept = list((cache / "hip").glob("*")) if cache.exists() else []
    assert [path.suffix for path in kept] == {"mkdir": [], "lock": [".code"]}.get(boundary, [".lock"])


@pytest.fixture
def small_disk(cache: Path) -> Iterator[Path]:
    """The cache on a disk of its own, of 8 KiB."""
    cache.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8k,mode=0700", "tmpfs", str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(
            f"mount is not allowed here: {done.stderr.strip()}; the tests above inject the errors instead"
        )
    yield cache
    subprocess.run(["umount", str(cache)], check=True)


def test_a_real_full_disk(store: Store, small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    (small_disk / "hip").mkdir(mode=0o700)
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(bytes(64 << 10))
    made = store.code(AMD)
    assert isinstance(made, Code)
    assert "is not kept in the cache: " in caplog.text
    assert not [path for path in (small_disk / "hip").iterdir() if path.suffix != ".lock"]
    (small_disk / "filler").unlink()
    assert store.code(AMD) == made
    assert only_file(small_disk).exists()


def test_a_real_read_only_disk(store: Store, small_disk: Path, compiler: Compiler) -> None:
    made = store.code(AMD)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert store.code(AMD) == made  # what is there is read
    assert compiler.compilations == 1
    assert store.code(PTX).resources.kernarg_bytes == 16  # what is not is built, and not kept
    assert compiler.compilations == 2


def test_no_folder_to_compile_in(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_store.tempfile, "TemporaryDirectory", raising(errno.ENOSPC))
    with pytest.raises(BuildError, match=r"no folder to compile in: .*No space left"):
        store.code(AMD)


def test_names_of_instances() -> None:
    assert AMD.name == "twice-fp16-d64-gfx942"
    assert Instance("append", "sm_90").name == "append-d0-sm_90"
    assert Instance("a", "sm_90", "bf16", 128, "general").name == "a-bf16-d128-general-sm_90"
    assert AMD.entry == "rocade_twice"

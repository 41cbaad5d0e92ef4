"""Opening AITER's libraries: once, by many threads, and what is said of one that cannot be used."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kernels.aiter import stub
from tests.kernels.aiter.call_cases import Case, call

from rocade_kernels.aiter import calls, library
from rocade_kernels.aiter.errors import AiterError, CallError, LibraryError, UnknownVersionError
from rocade_kernels.aiter.names import Family, VariantKey, file_name
from rocade_kernels.aiter.versions import FWD_0_1_10

CASE = Case("bf16", causal=True, window_left=-1, has_cap=False, has_lse=True, page_size=16)
KEY = CASE.key(Family.MHA_FWD)


def test_it_is_opened_once(tmp_path: Path) -> None:
    path = stub.install(tmp_path, KEY, "0.1.20")
    first = calls.load(path, KEY, "0.1.20")
    library.load.cache_clear()
    assert calls.load(path, KEY, "0.1.20").handle == first.handle
    # 0.1.10 has another layout behind the same symbol.
    assert calls.load(path, KEY, "0.1.10").handle != first.handle
    other = stub.install(tmp_path / "other", KEY, "0.1.20")
    assert calls.load(other, KEY, "0.1.20").handle != first.handle


def test_libraries_of_one_symbol_do_not_mix(tmp_path: Path) -> None:
    masks = [replace(KEY, needs_mask=mask) for mask in (True, False)]
    paths = [stub.install(tmp_path, key, "0.1.20") for key in masks]
    for key, path in zip(masks, paths, strict=True):
        opened = calls.load(path, key, "0.1.20")
        calls.mha_fwd(opened, replace(call(Family.MHA_FWD, CASE), causal=key.needs_mask), 1)
    assert [stub.Stub(path).calls for path in paths] == [1, 1]
    assert [stub.Stub(path).last["mask_type"] for path in paths] == ["2", "0"]
    assert not hasattr(ctypes.CDLL(None), FWD_0_1_10.symbol), "no other library of this process may take it"


def test_many_threads_open_and_call_at_once(tmp_path: Path) -> None:
    library.load.cache_clear()
    paths = [stub.install(tmp_path / str(n), KEY, "0.1.20") for n in range(4)]
    threads, rounds = 16, 50
    barrier = threading.Barrier(threads)

    def work(number: int) -> list[int]:
        barrier.wait()
        handles = []
        for turn in range(rounds):
            opened = calls.load(paths[(number + turn) % 4], KEY, "0.1.20")
            calls.mha_fwd(opened, call(Family.MHA_FWD, CASE), number)
            handles.append(opened.handle)
        return handles

    with ThreadPoolExecutor(threads) as pool:
        handles = {handle for each in pool.map(work, range(threads)) for handle in each}
    assert len(handles) == 4
    assert sum(stub.Stub(path).calls for path in paths) == threads * rounds


def test_exceptions_in_many_threads_stay_apart(tmp_path: Path) -> None:
    paths = [stub.install(tmp_path / str(n), KEY, "0.1.20") for n in range(2)]
    stub.Stub(paths[0]).throw(1)
    opened = [calls.load(path, KEY, "0.1.20") for path in paths]

    def work(number: int) -> None:
        for _ in range(200):
            if number % 2:
                calls.mha_fwd(opened[1], call(Family.MHA_FWD, CASE), 0)
            else:
                with pytest.raises(CallError, match="the stub was told to throw"):
                    calls.mha_fwd(opened[0], call(Family.MHA_FWD, CASE), 0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert [stub.Stub(path).destroyed for path in paths] == [800, 800]


def damage_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_text(path: Path) -> None:
    path.write_text("the library is elsewhere")


def damage_open(path: Path) -> None:
    path.parent.chmod(0o777)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (damage_short, "is truncated"),
        (damage_text, "is no 64-bit ELF library"),
        (damage_open, "writable by others"),
    ],
)
def test_a_library_that_is_not_opened(damage: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    path = stub.install(tmp_path / "jit", KEY, "0.1.20")
    damage(path)
    with pytest.raises(LibraryError, match=f"{file_name(KEY, '0.1.20')} .*{why}"):
        calls.load(path, KEY, "0.1.20")


@pytest.mark.parametrize(("built", "used"), [("0.1.7", "0.1.20"), ("0.1.20", "0.1.7")])
@pytest.mark.parametrize("family", [Family.MHA_FWD, Family.MHA_BATCH_PREFILL])
def test_a_library_of_another_version_does_not_export_the_function(
    built: str, used: str, family: Family, tmp_path: Path
) -> None:
    key = CASE.key(family)
    path = stub.install(tmp_path, key, built).rename(tmp_path / file_name(key, used))
    with pytest.raises(LibraryError, match=r"does not export _ZN5aiter.*another AITER version.*nm -D"):
        calls.load(path, key, used)


def test_a_version_that_is_not_known(tmp_path: Path) -> None:
    path = stub.install(tmp_path, KEY, "0.1.20")
    with pytest.raises(UnknownVersionError, match="ROCADE_AITER_VERSION"):
        calls.load(path, KEY, "0.1.21")
    paged = CASE.key(Family.MHA_BATCH_PREFILL)
    with pytest.raises(AiterError, match="not established"):
        calls.load(path, paged, "0.1.10.post1")


def build(path: Path, rest: str) -> None:
    """A library that exports mha_fwd and needs a symbol that is nowhere."""
    source = path.with_suffix(".cpp")
    source.write_text(f'extern "C" float {FWD_0_1_10.symbol}() {{ return 0; }} {rest}')
    stub.compiled("0.1.20")  # which skips without g++
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    path.chmod(0o644)


def test_what_the_linker_says_of_a_library_that_does_not_load(tmp_path: Path) -> None:
    """As when torch is missing, whose libraries AITER's name."""
    path = tmp_path / file_name(KEY, "0.1.20")
    build(path, 'extern "C" int absent; int* there() { return &absent; }')
    with pytest.raises(LibraryError, match=r"cannot be loaded: .*undefined symbol: absent.*torch"):
        calls.load(path, KEY, "0.1.20")


def test_functions_that_are_not_called_need_not_be_there(tmp_path: Path) -> None:
    """As those of another torch than this process has."""
    path = tmp_path / file_name(KEY, "0.1.20")
    build(path, 'extern "C" void absent(); void unused() { absent(); }')
    calls.mha_fwd(calls.load(path, KEY, "0.1.20"), call(Family.MHA_FWD, CASE), 0)


def test_hand_written_kernels_need_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = VariantKey(family=Family.FMHA_V3_FWD, dtype="bf16", needs_mask=True, has_lse=True)
    path = stub.install(tmp_path, key, "0.1.20")
    for value in ("", str(tmp_path / "absent")):
        monkeypatch.setenv("AITER_ASM_DIR", value)
        with pytest.raises(LibraryError, match="AITER_ASM_DIR names no folder, and AITER aborts"):
            calls.load(path, key, "0.1.20")
    monkeypatch.setenv("AITER_ASM_DIR", str(tmp_path))
    calls.load(path, key, "0.1.20")


def test_an_open_library_outlives_its_file(tmp_path: Path) -> None:
    """Whoever replaces it starts a new process: the linker knows a library by its path."""
    path = stub.install(tmp_path / "jit", KEY, "0.1.20")
    opened, told = calls.load(path, KEY, "0.1.20"), stub.Stub(path)
    stub.install(tmp_path / "new", KEY, "0.1.20").replace(path)
    assert calls.load(path, KEY, "0.1.20") == opened
    shutil.rmtree(path.parent)
    calls.mha_fwd(opened, call(Family.MHA_FWD, CASE), 3)
    assert told.last["stream_id_"] == "3"


def test_nothing_of_torch_is_needed() -> None:
    imports = "import sys; from rocade_kernels.aiter import calls, recipes, search"
    code = f"{imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""AITER builds a library in a real child process: killed, raced, stale, cut short, wrong; each has its words.

Only the compiler is another: it copies a stub library that was compiled before.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from tests.kernels.aiter import stub
from tests.rocade.backends.aiter.bootstrap.site import VERSION, Site
from tests.rocade.backends.aiter.bootstrap.test_job import alive, wait_until_dead

from rocade import _device
from rocade.backends.aiter.bootstrap import BootstrapError, _build, _job, _store, _variants
from rocade.backends.aiter.bootstrap._wanted import Means, Wanted
from rocade_kernels.aiter.errors import UnknownVersionError
from rocade_kernels.aiter.names import Family, VariantKey

CPU = torch.device("cpu")
KEY = VariantKey(family=Family.MHA_FWD, dtype="bf16", needs_mask=True, has_lse=True)
NAME = "mha_fwd_bf16_nbias_mask_lse_ndropout_nqscale"
# The same build in a process of its own, which prints the library's path.
PROGRAM = f"""
import torch
from rocade import _device
from rocade.backends.aiter.bootstrap import _build, _store
from rocade.backends.aiter.bootstrap._wanted import Means, Wanted
from rocade_kernels.aiter.names import Family, VariantKey
key = VariantKey(family=Family.MHA_FWD, dtype="bf16", needs_mask=True, has_lse=True)
device = torch.device("cpu")
target = _device.target(device)
store = _store.opened(target, {VERSION!r})
print(_build.build(store, Wanted(key, {VERSION!r}, target, 128, 0), Means(device)))
"""


def build(*, jobs: int | None = None) -> Path:
    """Build in this process."""
    target = _device.target(CPU)
    wanted = Wanted(KEY, VERSION, target, 128, 0)
    return _build.build(_store.opened(target, VERSION), wanted, Means(CPU, jobs))


def ended(process: subprocess.Popen[str], seconds: float = 60) -> tuple[str, str]:
    """What a program printed; it must end well."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return out.strip(), err


def wait_for_compiler(site: Site, count: int = 1, seconds: float = 60) -> int:
    """The process of the compiler, once it started."""
    until = time.monotonic() + seconds
    while len(site.started()) < count:
        assert time.monotonic() < until
        time.sleep(0.02)
    return site.started()[-1][1]


def left(site: Site) -> list[str]:
    """Builds at work, and what they left."""
    return [path.name for path in (site.cache / "aiter" / "work").iterdir()]


def test_a_library_is_built_once_and_lies_in_the_store(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = build()
    assert path.name == f"{NAME}.so"
    assert path.read_bytes() == stub.compiled(VERSION, ("COMPUTE",)).read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    assert build() == path
    assert [name for name, _ in site.started()] == [NAME]
    assert left(site) == []
    assert re.search(
        rf"rocade: AITER builds {NAME}, which can take minutes; .*\.log\n", capsys.readouterr().err
    )


def test_the_compiler_is_told_the_gpu_and_nothing_of_what_would_undo_the_build(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AITER_REBUILD", "1")
    build(jobs=3)
    (found,) = site.finished()
    assert (found["GPU_ARCHS"], found["MAX_JOBS"], found["AITER_REBUILD"]) == (_device.target(CPU), "3", None)
    assert str(found["TMPDIR"]).startswith(str(site.cache))


def test_the_users_choice_of_gpus_is_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_ARCHS", "gfx942;gfx950")
    monkeypatch.setenv("MAX_JOBS", "7")
    build()
    assert [(found["GPU_ARCHS"], found["MAX_JOBS"]) for found in site.finished()] == [("gfx942;gfx950", "7")]


def test_two_processes_at_once_compile_once(site: Site) -> None:
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), seconds=2)
    answers = [ended(process)[0] for process in [site.program(PROGRAM) for _ in range(3)]]
    assert len(set(answers)) == 1
    assert Path(answers[0]).is_file()
    assert len(site.started()) == len(site.finished()) == 1


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_build_that_is_killed_in_the_middle_leaves_nothing_and_the_next_one_does_it(
    site: Site, name: str
) -> None:
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), seconds=600)
    first = site.program(PROGRAM)
    compiler = wait_for_compiler(site)
    site.behave(stub.compiled(VERSION, ("COMPUTE",)))  # from the next one on
    waiting = site.program(PROGRAM)
    assert waiting.stderr is not None
    assert "waiting 0 s for: the build of" in waiting.stderr.readline()
    first.send_signal(getattr(signal, name))
    first.communicate(timeout=20)
    wait_until_dead([compiler])
    path, _ = ended(waiting)
    assert Path(path).is_file()
    assert left(site) == []
    assert len(site.finished()) == 1


def test_when_aiter_itself_is_killed_the_build_fails_with_words_and_no_compiler_goes_on(site: Site) -> None:
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), seconds=600)
    process = site.program(PROGRAM)
    compiler = wait_for_compiler(site)
    parent = int(Path(f"/proc/{compiler}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    _, err = process.communicate(timeout=20)
    assert process.returncode != 0
    assert f"AITER builds {NAME}: ended by SIGKILL" in err
    assert not alive(compiler)
    assert left(site) == []


def test_a_stale_lock_of_aiter_is_not_waited_for(site: Site) -> None:
    """AITER would wait for ever for a lock file whose owner was killed; builds never share a folder."""
    store = _store.opened(_device.target(CPU), VERSION)
    for folder in (store.libraries, next(iter([store.work / f"{store.tag}-{NAME}@elsewhere" / "jit"]))):
        (folder / "build").mkdir(parents=True)
        (folder / "build" / f"lock_{NAME}").touch()
    began = time.monotonic()
    assert build().is_file()
    assert time.monotonic() - began < 30


def test_a_folder_that_a_killed_build_left_is_removed_with_its_stale_lock(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_build.socket, "gethostname", lambda: "here")
    store = _store.opened(_device.target(CPU), VERSION)
    stale = store.named("work", NAME, "@here") / "jit" / "build"
    stale.mkdir(parents=True)
    (stale / f"lock_{NAME}").touch()
    (stale.parent / f"{NAME}.so").write_bytes(b"half")
    assert build().read_bytes() == stub.compiled(VERSION, ("COMPUTE",)).read_bytes()
    assert left(site) == []


def test_a_build_that_takes_too_long_is_stopped(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_AITER_BUILD_SECONDS", "6")
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), seconds=600)
    began = time.monotonic()
    with pytest.raises(
        BootstrapError, match=r"not done after 6 s, so it was stopped.*ROCADE_AITER_BUILD_SECONDS"
    ):
        build()
    assert time.monotonic() - began < 20
    wait_until_dead([process for _, process in site.started()])
    assert left(site) == []


def test_a_failed_compiler_is_shown(site: Site) -> None:
    site.behave(Path("/nowhere"), exit=1)
    with pytest.raises(BootstrapError, match=r"(?s)SystemExit: \[aiter\] build.*error: no such instruction"):
        build()
    assert left(site) == []


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_a_truncated_library_never_reaches_the_store(site: Site, size: int) -> None:
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), bytes=size)
    with pytest.raises(
        BootstrapError, match=rf"AITER builds {NAME}: .*{NAME}\.so is (truncated|no 64-bit ELF)"
    ):
        build()
    assert not list((site.cache / "aiter" / "libraries").glob("**/*.so"))
    site.behave(stub.compiled(VERSION, ("COMPUTE",)))
    assert build().is_file()


def test_a_library_in_the_store_that_was_cut_short_is_built_again(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = build()
    os.truncate(path, 5000)
    assert build() == path
    assert len(site.finished()) == 2
    assert path.read_bytes() == stub.compiled(VERSION, ("COMPUTE",)).read_bytes()
    assert "rocade: built again: " in capsys.readouterr().err


def test_the_library_of_another_version_is_refused_by_its_symbol(site: Site) -> None:
    site.behave(stub.compiled("0.1.7.post2.dev18"))
    with pytest.raises(BootstrapError, match=r"does not export _ZN5aiter7mha_fwd.*another AITER version"):
        build()


def test_an_unknown_version_is_refused_before_anything_is_built(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder / f"amd_aiter-{VERSION}.dist-info").rename(site.folder / "amd_aiter-0.2.0.dist-info")
    metadata = site.folder / "amd_aiter-0.2.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace(VERSION, "0.2.0"))
    with pytest.raises(UnknownVersionError, match=r"AITER 0\.2\.0 is not known.*ROCADE_AITER_VERSION"):
        _variants.ensure(KEY, CPU, head_dim=128)
    assert site.started() == []
    monkeypatch.setenv("ROCADE_AITER_VERSION", VERSION)
    assert _variants.ensure(KEY, CPU, head_dim=128).name == f"{NAME}.so"


def test_another_library_than_expected_is_named(site: Site) -> None:
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), name="mha_fwd_bf16_other.so")
    with pytest.raises(BootstrapError, match=r"it built mha_fwd_bf16_other\.so instead; see .*\.log"):
        build()


@pytest.mark.parametrize("after", ["raise", "abort"])
def test_a_library_that_fails_when_aiter_runs_it_is_kept_for_the_check(site: Site, after: str) -> None:
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), after=after)
    assert build().is_file()


def test_what_aiter_built_for_itself_is_not_built_again(site: Site) -> None:
    helper = site.folder / "aiter" / "jit" / "module_aiter_core.so"
    helper.write_bytes(b"helper")
    path = build()
    assert (path.parent / helper.name).read_bytes() == b"helper"
    assert helper.read_bytes() == b"helper"


def test_progress_tells_the_objects(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_job, "PROGRESS_SECONDS", 0.2)
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), seconds=2)
    build()
    assert re.search(rf"rocade: AITER builds {NAME}: \d+ s, 1 of 4 objects\n", capsys.readouterr().err)


def test_a_cache_that_others_can_write_is_refused(site: Site) -> None:
    (site.cache / "aiter").mkdir()
    (site.cache / "aiter").chmod(0o777)
    with pytest.raises(BootstrapError, match="writable by others"):
        build()

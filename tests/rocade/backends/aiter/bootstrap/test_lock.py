"""The lock of a build: real processes hold it, are killed, leave files behind; nobody waits for the dead."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocade.backends.aiter.bootstrap import _lock
from rocade.backends.aiter.bootstrap._errors import BootstrapError

HOLDER = """\
import sys, time
from pathlib import Path
from rocade.backends.aiter.bootstrap import _lock
with _lock.held(Path(sys.argv[1]), "the build of a", 5, print):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Another process that has the lock."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def take(path: Path, seconds: float, say: Callable[[str], None] = print) -> float:
    """Seconds until the lock was had."""
    began = time.monotonic()
    with _lock.held(path, "the build of b", seconds, say):
        return time.monotonic() - began


def test_a_killed_holder_frees_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "process" in path.read_text()  # the dead holder's note is still there, and means nothing
    assert take(path, 5) < 1


def test_the_file_of_a_process_that_is_long_gone_means_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("the build of a, process 1 on elsewhere")
    assert take(path, 5) < 1
    assert f"process {os.getpid()}" in path.read_text()


def test_a_living_holder_is_named_while_waiting_and_when_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lock, "PROGRESS_SECONDS", 0.2)
    path, said = tmp_path / "lock", list[str]()
    process = holder(path)
    try:
        with pytest.raises(BootstrapError, match=rf"waited 1 s.*the build of a, process {process.pid} on "):
            take(path, 1, said.append)
    finally:
        process.kill()
        process.wait()
    assert len(said) > 2
    assert all(f"process {process.pid}" in line for line in said)


def test_it_is_had_when_the_holder_is_done(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with _lock.held(path, "a", 5, print):
        pass
    assert take(path, 5) < 1


def test_a_copy_of_the_descriptor_in_a_fork_does_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with _lock.held(path, "a", 5, print) as handle:
        sleeper = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(handle,)
        )
    try:
        assert take(path, 5) < 1
    finally:
        sleeper.kill()
        sleeper.communicate()


def test_a_child_that_has_the_descriptor_keeps_it_when_the_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(handle,))
    os.close(handle)  # as the system does when this process dies
    try:
        with pytest.raises(BootstrapError):
            take(path, 0.3)
    finally:
        child.kill()
        child.communicate()
    assert take(path, 5) < 1


def test_a_file_system_without_locks_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(_lock.fcntl, "flock", flock)
    with pytest.raises(BootstrapError, match=r"has no locks.*ROCADE_CACHE_DIR"):
        take(tmp_path / "lock", 5)

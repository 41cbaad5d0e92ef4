"""A lock of this machine for one build. The system frees it when its holder dies, however that comes about.

It is `flock` on a file that is never removed, so a file left behind means nothing and needs no tidying. What
the file holds is for people: who has the lock. On NFS, Linux passes `flock` to the server, which frees the
lock of a client that stops answering after its lease (90 s by default). With `nolock` or `local_lock` it is
one lock a host, and two hosts may then build the same library. That is slow and not wrong: each host
builds in a folder of its own, and a finished library appears by rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rocade.backends.aiter.bootstrap._errors import BootstrapError

POLL_SECONDS = 0.1
PROGRESS_SECONDS = 10.0


@contextlib.contextmanager
def held(path: Path, what: str, seconds: float, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock; yields the descriptor that has it.

    Args:
        path: the lock's file; made when it is not there.
        what: what the holder does, for those who wait.
        seconds: how long to wait for another holder.
        say: takes a line of progress.

    Raises:
        BootstrapError: another holder is still at work, or the file system has no locks.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(handle, path, seconds, say)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{what}, process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        try:
            yield handle
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # also for a copy that a fork made meanwhile
    finally:
        os.close(handle)


def _take(handle: int, path: Path, seconds: float, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    told = began - PROGRESS_SECONDS
    while not _tried(handle, path):
        now = time.monotonic()
        holder = os.pread(handle, 1000, 0).decode(errors="replace") or "another process"
        if now - began > seconds:
            raise BootstrapError(
                f"waited {seconds:.0f} s for the lock {path}, which is held by: {holder}. It is freed when "
                "that process ends; there is nothing to remove"
            )
        if now - told >= PROGRESS_SECONDS:
            told = now
            say(f"waiting {now - began:.0f} s for: {holder}")
        time.sleep(POLL_SECONDS)


def _tried(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise BootstrapError(
            f"the file system of {path} has no locks ({error.strerror}); set ROCADE_CACHE_DIR to a folder "
            "of one that has"
        ) from error
    return True

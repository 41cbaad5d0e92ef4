"""Runs a job in a child process, with a time limit, progress on stderr, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocade import _settings
from rocade.backends.aiter.bootstrap import _child
from rocade.backends.aiter.bootstrap._errors import ChildError, CrashError

PROGRESS_SECONDS = 10.0  # between two lines
POLL_SECONDS = 0.1
GRACE_SECONDS = 2.0  # for ninja to remove half-written objects
KILL_SECONDS = 10.0  # for the system to end what was killed; nobody waits longer for a hung driver
SHOWN_CHARS = 1500  # of the log's end


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a child does: `module.run(**arguments)`. Arguments and result are JSON."""

    what: str  # for the user: "AITER builds X"
    module: str
    arguments: Mapping[str, object]
    environment: Mapping[str, str | None]  # changes to this process's; None removes a variable
    seconds: float
    folder: Path  # for the answer; the caller's own, empty
    log: Path


def say(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"rocade: {text}\n")
    sys.stderr.flush()


def run(job: Job, *, lock: int | None = None, progress: Callable[[], str] = str) -> dict[str, str]:
    """Do the job and return its result.

    Args:
        job: what to do.
        lock: a file descriptor that the child keeps open, too, so that a lock outlives a killed parent for
            as long as the child does.
        progress: what to add to a line of progress.

    Raises:
        ChildError: it failed or took too long. CrashError: a signal ended it.
    """
    answer = job.folder / "answer.json"
    with job.log.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-P", _child.__file__],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_settings.child_environment(**job.environment),
            pass_fds=() if lock is None else (lock,),
            start_new_session=True,
        )
    try:
        _send(
            child, {"path": sys.path, "module": job.module, "arguments": job.arguments, "answer": str(answer)}
        )
        in_time = _wait(child, job, progress)
    finally:
        _end(child)
    if not in_time:
        raise ChildError(
            f"{job.what}: not done after {job.seconds:.0f} s, so it was stopped "
            f"({_settings.AITER_BUILD_SECONDS.name} sets the limit of a build){_end_of(job.log)}"
        )
    return _result(answer, job, child.returncode)


def _send(child: subprocess.Popen[bytes], job: Mapping[str, object]) -> None:
    """The pipe stays open: its end tells the child that this process died."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it ended at once, which is reported with its log
        child.stdin.write(json.dumps(job).encode() + b"\n")
        child.stdin.flush()


def _wait(child: subprocess.Popen[bytes], job: Job, progress: Callable[[], str]) -> bool:
    """Whether it ended in time."""
    began = shown = time.monotonic()
    while not _ended(child):
        time.sleep(POLL_SECONDS)
        now = time.monotonic()
        if now - began > job.seconds:
            return False
        if now - shown >= PROGRESS_SECONDS:
            shown = now
            extra = progress()
            say(f"{job.what}: {now - began:.0f} s" + (f", {extra}" if extra else ""))
    return True


def _ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether it ended. It is not reaped, which would free its number and so the name of its session."""
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # this program ignores SIGCHLD, or reaps whatever ends
        return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and all that it started; what a child left running when it ended is ended, too."""
    if not _ended(child):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        _ends_within(child, GRACE_SECONDS)
    _child.end_session(child.pid)
    if _ends_within(child, KILL_SECONDS):
        child.wait()
    else:
        say(f"process {child.pid} does not end although it was killed: it waits in the kernel, as for a GPU")
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()


def _ends_within(child: subprocess.Popen[bytes], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not _ended(child):
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _result(answer: Path, job: Job, status: int) -> dict[str, str]:
    try:
        found = json.loads(answer.read_text())
    except FileNotFoundError:
        if status < 0:
            name = signal.Signals(-status).name
            kind = ChildError if -status in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT) else CrashError
            raise kind(f"{job.what}: ended by {name}{_end_of(job.log)}") from None
        raise ChildError(f"{job.what}: ended with status {status}{_end_of(job.log)}") from None
    if "error" in found:
        raise ChildError(f"{job.what}: {found['error']}{_end_of(job.log)}")
    return dict(found["result"] or {})


def _end_of(log: Path) -> str:
    try:
        text = log.read_text(errors="replace").strip()
    except OSError:
        return ""
    return f". The end of {log}:\n{text[-SHOWN_CHARS:]}" if text else f". {log} is empty"

"""The program in which AITER's code runs: does one job, and ends with all its processes when its parent dies.

Started as a script, so nothing of this package can be imported before the parent's `sys.path` is taken over.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

_STATE, _SESSION = 0, 3  # fields of /proc/PID/stat after the command's name


def members(session: int) -> list[int]:
    """Living processes of a session. Compilers are in process groups of their own, yet in the session."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # ended meanwhile
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[_SESSION]) == session and fields[_STATE] not in (b"Z", b"X"):
                found.append(int(entry.name))
    return found


def end_session(session: int) -> None:
    """Kill every process of a session; the caller, if it is one, last."""
    own = os.getpid()
    for _ in range(20):  # one that is just starting another escapes the first round
        others = [process for process in members(session) if process != own]
        if not others:
            break
        for process in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    if os.getsid(0) == session:
        os.kill(own, signal.SIGKILL)


def _watch(parent: int) -> None:
    """Wait until the parent closes its end of the pipe, as the system does when it dies."""
    while os.read(parent, 1):
        pass
    end_session(os.getsid(0))


def _write(path: Path, answer: dict[str, object]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(answer))
    new.replace(path)


def main() -> None:
    """Read a job from stdin, do it, write the answer to the file it names."""
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # ignored by the parent, it would break AITER's own children
    parent = os.dup(0)  # the copy is not inherited by compilers
    job = json.loads(_line(parent))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    sys.path[:] = job["path"]
    try:
        result = importlib.import_module(job["module"]).run(**job["arguments"])
        answer = {"result": result}
    except BaseException as error:  # AITER raises SystemExit when a compiler fails
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    _write(Path(job["answer"]), answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the exit handlers of torch and HIP have crashed before, and nothing is left to tidy


def _line(pipe: int) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (more := os.read(pipe, 1 << 16)):
        line += more
    return line


if __name__ == "__main__":
    main()

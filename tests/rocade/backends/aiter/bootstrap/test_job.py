"""A child process does a job: its result, errors and time limit; and nothing of it outlives the parent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.rocade.backends.aiter.bootstrap.site import INTERRUPTIBLE

from rocade.backends.aiter.bootstrap import _child, _job
from rocade.backends.aiter.bootstrap._errors import ChildError, CrashError

MODULE = '''\
import os, signal, subprocess, sys, time

def add(a, b):
    print("adding", flush=True)
    return {"sum": str(a + b), "found": os.environ.get("A_VARIABLE", "unset")}

def fail(text):
    raise SystemExit(text)

def end(name):
    os.kill(os.getpid(), getattr(signal, name))

def leave():
    os._exit(3)

def compile_for_ever(note):
    """As ninja does: a compiler in a process group of its own, that a signal to the child does not reach."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    compiler = subprocess.Popen([sys.executable, "-c", code], process_group=0)
    with open(note + ".new", "w") as file:
        file.write(f"{os.getpid()} {compiler.pid}")
    os.replace(note + ".new", note)
    compiler.wait()

def stop_and_leave_a_compiler(note):
    subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(600)  # {note}"], process_group=0)
    return {}

def read_stdin():
    return {"read": sys.stdin.read()}
'''
Describe: TypeAlias = Callable[..., _job.Job]
NAMES = ("add", "fail", "end", "leave", "compile_for_ever", "stop_and_leave_a_compiler", "read_stdin")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """`job(name, seconds=.., **arguments)` describes one whose module has the function as `run`."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "jobs.py").write_text(MODULE)
    for name in NAMES:
        (modules / f"job_{name}.py").write_text(f"from jobs import {name} as run\n")
    monkeypatch.syspath_prepend(modules)
    folder = tmp_path / "work"
    folder.mkdir()

    def describe(name: str, /, *, seconds: float = 60, **arguments: Any) -> _job.Job:
        return _job.Job(
            what=f"job {name}",
            module=f"job_{name}",
            arguments=arguments,
            environment={"A_VARIABLE": "set"},
            seconds=seconds,
            folder=folder,
            log=tmp_path / "log",
        )

    return describe


def alive(process: int) -> bool:
    """Whether a process runs; one that ended and was not reaped does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def wait_for(path: Path, seconds: float = 30) -> str:
    """What a file holds, once it is there."""
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.02)
    return path.read_text()


def wait_until_dead(processes: list[int], seconds: float = 10) -> None:
    """Fail if one still runs after a while."""
    until = time.monotonic() + seconds
    while left := [process for process in processes if alive(process)]:
        assert time.monotonic() < until, f"{left} outlived their parent"
        time.sleep(0.02)


def test_a_result_comes_back_and_output_goes_to_the_log(job: Describe, tmp_path: Path) -> None:
    assert _job.run(job("add", a=1, b=2)) == {"sum": "3", "found": "set"}
    assert (tmp_path / "log").read_text() == "adding\n"


def test_an_exception_is_told_with_the_end_of_the_log(job: Describe, tmp_path: Path) -> None:
    with pytest.raises(ChildError, match=r"job fail: SystemExit: no compiler\. The end of .*log:\nTraceback"):
        _job.run(job("fail", text="no compiler"))


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS"])
def test_a_crash_is_told_apart(job: Describe, name: str) -> None:
    with pytest.raises(CrashError, match=f"ended by {name}"):
        _job.run(job("end", name=name))


def test_being_killed_is_no_crash(job: Describe) -> None:
    with pytest.raises(ChildError, match="ended by SIGKILL") as caught:
        _job.run(job("end", name="SIGKILL"))
    assert not isinstance(caught.value, CrashError)


def test_leaving_without_an_answer_is_an_error(job: Describe) -> None:
    with pytest.raises(ChildError, match="ended with status 3"):
        _job.run(job("leave"))


def test_a_child_has_nothing_to_read(job: Describe) -> None:
    assert _job.run(job("read_stdin", seconds=20)) == {"read": ""}


def test_too_slow_a_job_is_ended_with_all_its_processes(job: Describe, tmp_path: Path) -> None:
    note = tmp_path / "note"
    began = time.monotonic()
    with pytest.raises(ChildError, match=r"not done after 5 s.*ROCADE_AITER_BUILD_SECONDS"):
        _job.run(job("compile_for_ever", seconds=5, note=str(note)))
    assert time.monotonic() - began < 20
    processes = [int(process) for process in note.read_text().split()]
    assert len(processes) == 2
    wait_until_dead(processes)


def test_what_a_job_left_running_is_ended(job: Describe, tmp_path: Path) -> None:
    note = str(tmp_path / "note")
    _job.run(job("stop_and_leave_a_compiler", note=note))
    assert not any(has_argument(entry, note) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def has_argument(process: Path, text: str) -> bool:
    """Whether a text is in a process's command line."""
    try:
        return text.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


PARENT = """\
import sys
from pathlib import Path
from rocade.backends.aiter.bootstrap import _job
folder = Path(sys.argv[1])
_job.run(_job.Job(what="job", module="job_compile_for_ever", arguments={"note": str(folder / "note")},
                  environment={}, seconds=600, folder=folder, log=folder / "log"))
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_when_the_parent_is_ended_so_is_everything(job: Describe, tmp_path: Path, name: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE + PARENT, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    processes = [int(process) for process in wait_for(tmp_path / "note").split()]
    assert all(map(alive, processes))
    parent.send_signal(getattr(signal, name))
    parent.wait(20)
    wait_until_dead(processes)


def test_a_process_that_even_killing_does_not_end_is_not_waited_for(
    job: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one that hangs in a GPU's driver; here none is killed."""
    monkeypatch.setattr(_job, "KILL_SECONDS", 0.5)
    monkeypatch.setattr(_job._child, "end_session", lambda session: None)
    monkeypatch.setattr(_job.os, "killpg", lambda *_: None)
    note, processes = tmp_path / "note", list[int]()
    try:
        with pytest.raises(ChildError, match="not done after 4 s"):
            _job.run(job("compile_for_ever", seconds=4, note=str(note)))
        processes += map(int, note.read_text().split())
        assert f"process {processes[0]} does not end although it was killed" in capsys.readouterr().err
        assert all(map(alive, processes))
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)
        os.waitpid(processes[0], 0)


IGNORES = """\
import signal, sys
from pathlib import Path
from rocade.backends.aiter.bootstrap import _job
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
folder = Path(sys.argv[1])
print(_job.run(_job.Job(what="job", module="job_add", arguments={"a": 1, "b": 2}, environment={}, seconds=60,
                        folder=folder, log=folder / "log")))
"""


def test_a_program_that_ignores_the_end_of_children_gets_its_result(job: Describe, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IGNORES, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "'sum': '3'" in done.stdout, done.stderr


def test_progress_is_told_while_it_runs(
    job: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_job, "PROGRESS_SECONDS", 0.3)
    with pytest.raises(ChildError):
        _job.run(
            job("compile_for_ever", seconds=2, note=str(tmp_path / "note")), progress=lambda: "3 of 4 objects"
        )
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2
    assert all(re.fullmatch(r"rocade: job compile_for_ever: \d+ s, 3 of 4 objects", line) for line in lines)


def test_members_of_a_session_are_found_in_any_group() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], process_group=0)"
    leader = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)
    try:
        until = time.monotonic() + 20
        while len(_child.members(leader.pid)) < 2:
            assert time.monotonic() < until
        assert leader.pid in _child.members(leader.pid)
    finally:
        _child.end_session(leader.pid)
        leader.communicate()
    assert _child.members(leader.pid) == []

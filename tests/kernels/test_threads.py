"""The thread pool: same bits whatever the timing, callers from several threads, and a life after fork."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from tests.kernels import cases
from tests.kernels.cases import Case

from rocade_kernels import cpu_plans

WAIT_SECONDS = 60


def case(seed: int = 0, threads: int = 4, **options: Any) -> Case:
    rng = np.random.default_rng(seed)
    level = cases.paged_level(rng, [1, 20, 1], [900, 300, 40], 2, (64, 64), 16, "fp32")
    q = cases.values(rng, (22, 8, 64), "fp32")
    return Case([level], q, "fp32", 2, causal=True, plan_options={"threads": threads}, **options)


def test_same_bits_every_run() -> None:
    problem = case()
    plan = cases.make_plan(problem)
    assert plan.partial_rows > 0
    out, lse = cases.run(problem, plan, threads=1)
    for threads in (
        1,
        2,
        3,
        8,
    ) * 10:  # a plan's work list is fixed, so even the number of threads changes nothing
        again, again_lse = cases.run(problem, plan, threads=threads)
        np.testing.assert_array_equal(out, again)
        np.testing.assert_array_equal(lse, again_lse)


def test_callers_from_many_threads() -> None:
    problems = [case(seed) for seed in range(6)]
    want = [cases.run(problem) for problem in problems]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(25):
            out, lse = cases.run(problems[i], threads=3)
            if not (np.array_equal(out, want[i][0]) and np.array_equal(lse, want[i][1])):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(problems))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert wrong == []


def wait_for(pid: int) -> int:
    """The exit code of a child, which is killed when it hangs."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


def fork_and_compare(problem: Case, want: np.ndarray) -> int:
    pid = os.fork()
    if pid == 0:
        same = all(np.array_equal(cases.run(problem, threads=3)[0], want) for _ in range(3))
        os._exit(0 if same else 1)
    return wait_for(pid)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_after_the_pool_has_run() -> None:
    problem = case()
    want = cases.run(problem, threads=3)[0]
    for _ in range(5):
        assert fork_and_compare(problem, want) == 0
    np.testing.assert_array_equal(cases.run(problem, threads=3)[0], want)  # the parent goes on


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_while_another_thread_runs() -> None:
    problem = case()
    want = cases.run(problem, threads=3)[0]
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            cases.run(problem, threads=3)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            assert fork_and_compare(problem, want) == 0
    finally:
        stop.set()
        thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def test_more_threads_than_work() -> None:
    problem = case()
    want = cases.run(problem, threads=1)[0]
    np.testing.assert_array_equal(cases.run(problem, threads=10_000)[0], want)
    np.testing.assert_array_equal(cases.run(problem, threads=0)[0], want)


def test_chosen_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    names = cpu_plans.isa_names()
    assert names[0] == "plain"
    assert cpu_plans.chosen_isa() == cpu_plans.BEST_ISA or "ROCADE_CPU_ISA" in os.environ
    for number, name in enumerate(names):
        monkeypatch.setenv("ROCADE_CPU_ISA", name)
        assert cpu_plans.chosen_isa() == number
    monkeypatch.setenv("ROCADE_CPU_ISA", "sse9")
    with pytest.raises(ValueError, match="ROCADE_CPU_ISA is 'sse9'; this machine has plain"):
        cpu_plans.chosen_isa()

"""Teams of PyTorch's OpenMP runtime and our own pool: the same bits, several callers, life after fork."""

from __future__ import annotations

import ctypes.util
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kernels import cases
from tests.kernels.test_threads import WAIT_SECONDS, case, fork_and_compare

from rocade_kernels import cpu_threads

TORCH = Path(torch.__file__).parents[1]


@pytest.fixture(autouse=True)
def own_pool() -> Iterator[None]:
    """Every test starts and ends on the library's own threads."""
    cpu_threads.use_own_pool()
    yield
    cpu_threads.use_own_pool()


def torch_runtime() -> Path:
    torch.ones(1 << 16).sum()  # starts torch's team
    runtime = cpu_threads.loaded_openmp(prefer=TORCH)
    assert runtime is not None
    return runtime


def test_finds_the_runtime_that_torch_brought() -> None:
    assert torch_runtime().is_relative_to(TORCH)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_same_bits_on_a_team(threads: int) -> None:
    problem = case()
    plan = cases.make_plan(problem)
    out, lse = cases.run(problem, plan, threads=threads)
    assert cpu_threads.use_openmp(torch_runtime())
    for _ in range(10):
        again, again_lse = cases.run(problem, plan, threads=threads)
        np.testing.assert_array_equal(out, again)
        np.testing.assert_array_equal(lse, again_lse)


def test_callers_from_many_threads_on_teams() -> None:
    assert cpu_threads.use_openmp(torch_runtime())
    problems = [case(seed) for seed in range(4)]
    want = [cases.run(problem) for problem in problems]
    wrong: list[int] = []

    def work(i: int) -> None:
        results = (cases.run(problems[i], threads=3)[0] for _ in range(10))
        wrong.extend(i for out in results if not np.array_equal(out, want[i][0]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(problems))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_leaves_the_team() -> None:
    """OpenMP runtimes hang in a child whose parent had a team; the child must not use one."""
    assert cpu_threads.use_openmp(torch_runtime())
    problem = case()
    want = cases.run(problem, threads=3)[0]
    assert fork_and_compare(problem, want) == 0
    np.testing.assert_array_equal(cases.run(problem, threads=3)[0], want)


def test_a_library_without_openmp_is_no_runtime() -> None:
    name = ctypes.util.find_library("c")
    assert name is not None
    assert not cpu_threads.use_openmp(Path(name))


@pytest.mark.parametrize(("value", "joined"), [("own", False), ("openmp", True), ("", True)])
def test_setting(monkeypatch: pytest.MonkeyPatch, value: str, joined: bool) -> None:
    torch_runtime()
    monkeypatch.setenv("ROCADE_CPU_POOL", value)
    assert cpu_threads.join_openmp(prefer=TORCH) is joined


def test_junk_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_CPU_POOL", "tbb")
    with pytest.raises(ValueError, match="ROCADE_CPU_POOL is 'tbb'"):
        cpu_threads.join_openmp()

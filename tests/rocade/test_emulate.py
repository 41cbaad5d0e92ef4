"""`rocade.emulate`: what CPU tensors stand for inside, what a finding does, and what is refused."""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.rocade.batches import SIZES, Batch, workspace

import rocade
from rocade import _device, _dispatch, cascade
from rocade.backends._gpu import Launcher
from rocade.backends.hip import _states
from rocade_emulator import EmulationError
from rocade_kernels import hip_launch
from rocade_kernels.runtime import Arguments

TARGET = "gfx942"
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts as a new process does: nothing logged, nothing settled."""
    monkeypatch.setattr(_dispatch, "_logged", set())
    monkeypatch.setattr(_dispatch, "_settled", {})


def state(n: int = 3, h: int = 2, d: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, h, d, dtype=torch.float16), torch.randn(n, h)


def test_a_call_runs_the_gpus_code_and_gives_its_result() -> None:
    a, b = state(), state()
    with rocade.emulate(TARGET) as emulation:
        emulated = rocade.merge_state(*a, *b)
    plain = rocade.merge_state(*a, *b)
    torch.testing.assert_close(emulated, plain, rtol=2e-3, atol=2e-3)
    (result,) = emulation.results
    assert result.target.name == TARGET
    assert result.kernel.name == "rocade_merge_state"
    assert result.counters.bytes_written == sum(t.nbytes for t in emulated)
    assert result.ok


def test_auto_decides_as_on_the_gpu_and_says_that_it_is_emulated(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rocade"), rocade.emulate(TARGET):
        rocade.merge_state(*state(), *state())
        rocade.merge_state(*state(), *state())
        told = rocade.explain("merge_state")
    assert (told.backend, told.target) == ("hip", TARGET)
    (record,) = [record for record in caplog.records if record.name == "rocade"]
    assert record.levelno == logging.INFO
    assert f"merge_state on {TARGET}, emulated, runs on backend 'hip'" in record.getMessage()


def test_what_the_gpu_has_no_kernel_for_runs_as_it_would_there(caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch([1, 1], [5, 6])
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace())
    with caplog.at_level(logging.INFO, "rocade"), rocade.emulate(TARGET):
        wrapper.plan(*batch.pages.table, *SIZES, 4, q_data_type="float32")
    told = rocade.explain(wrapper)
    backends = [
        verdict.backend for verdict in _dispatch.verdicts(told.request, TARGET) if not verdict.reasons
    ]
    assert f"runs on backend {backends[0]!r}" in caplog.text
    assert "WARNING" not in caplog.text  # what is planned or not for the target is nothing to mend here


def test_outside_and_in_other_threads_a_cpu_is_a_cpu() -> None:
    here = _device.target(CPU)
    seen = []
    with rocade.emulate(TARGET):
        thread = threading.Thread(target=lambda: seen.append(_device.target(CPU)))
        thread.start()
        thread.join()
        assert _device.place(CPU) == (TARGET, True)
        assert _device.target(torch.device("meta")) == "meta"
    assert seen == [here]
    assert _device.place(CPU) == (here, False)


def test_contexts_nest_and_can_be_entered_again() -> None:
    first, second = rocade.emulate(TARGET), rocade.emulate("gfx950")
    with first:
        with second, first:
            assert _device.target(CPU) == TARGET
        assert _device.target(CPU) == TARGET
        with second:
            assert _device.target(CPU) == "gfx950"
            rocade.merge_state(*state(), *state())
        rocade.merge_state(*state(), *state())
    assert [e.results[0].target.name for e in (first, second)] == [TARGET, "gfx950"]
    with pytest.raises(KeyError), first:
        raise KeyError
    assert _device.place(CPU).emulated is False


def test_threads_and_tasks_may_share_one_object() -> None:
    emulation, both = rocade.emulate(TARGET), threading.Barrier(2, timeout=60)
    seen: list[tuple[bool, bool]] = []

    def enter() -> None:
        with emulation:
            both.wait()
            inside = _device.place(CPU).emulated
            both.wait()
        seen.append((inside, _device.place(CPU).emulated))

    threads = [threading.Thread(target=enter) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(True, False)] * 2

    async def task(turns: int) -> bool:
        with emulation:
            for _ in range(turns):
                await asyncio.sleep(0)
        return _device.place(CPU).emulated

    async def tasks() -> list[bool]:
        return await asyncio.gather(task(2), task(1), task(3))

    assert asyncio.run(tasks()) == [False] * 3


def test_generators_may_leave_out_of_order() -> None:
    def inside(target: str) -> Iterator[str]:
        with rocade.emulate(target):
            yield target

    first, second = inside(TARGET), inside("gfx950")
    next(first), next(second)
    first.close()
    assert _device.target(CPU) == "gfx950"
    second.close()
    assert _device.place(CPU).emulated is False
    with pytest.raises(RuntimeError, match="left in another thread"):
        rocade.emulate(TARGET).__exit__(None, None, None)


def test_a_freed_mask_is_not_taken_for_no_mask() -> None:
    mask = torch.zeros(3, dtype=torch.bool)
    mask.untyped_storage().resize_(0)
    with rocade.emulate(TARGET), pytest.raises(ValueError, match=r"mask: got .* storage was freed"):
        rocade.merge_state_in_place(*state(), *state(), mask=mask)


def test_the_cpu_backend_is_refused_inside() -> None:
    with rocade.emulate(TARGET), pytest.raises(rocade.ArchCapabilityError, match="target is gfx942"):
        rocade.merge_state(*state(), *state(), backend="cpu")


def faulty(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    """Make the kernel believe in other sizes than its tensors have."""
    true, true_dense = hip_launch.merge_state, hip_launch.merge_state_dense

    def wrong(rows: int, heads: int, head_bytes: int) -> hip_launch.Tiles:
        return true(rows + changes.get("rows", 0), heads, head_bytes + changes.get("bytes", 0))

    def wrong_dense(rows: int, heads: int, head_bytes: int, **facts: Any) -> hip_launch.DensePair | None:
        return true_dense(rows + changes.get("rows", 0), heads, head_bytes, **facts)

    monkeypatch.setattr(_states, "_pair_tiles", _states._pair_tiles.__wrapped__)
    monkeypatch.setattr(_states, "_dense_pair", _states._dense_pair.__wrapped__)
    monkeypatch.setattr(hip_launch, "merge_state", wrong)
    monkeypatch.setattr(hip_launch, "merge_state_dense", wrong_dense)


def test_a_byte_behind_a_tensor_is_out_of_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty(monkeypatch, rows=1)
    with rocade.emulate(TARGET) as emulation, pytest.raises(EmulationError, match="out of bounds"):
        rocade.merge_state(*state(), *state())
    assert len(emulation.results) == 1


def test_a_hole_of_a_strided_tensor_is_out_of_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more pack a head: with contiguous heads that is the next head's memory, here it is nobody's."""
    wide = [torch.randn(3, 2, 80, dtype=torch.float16)[..., :64] for _ in range(2)]
    lse = torch.randn(3, 2)
    with rocade.emulate(TARGET):
        rocade.merge_state(wide[0], lse, wide[1], lse)
    faulty(monkeypatch, bytes=16)
    out = (wide[0].clone(), lse.clone())
    with rocade.emulate(TARGET), pytest.raises(EmulationError, match="out of bounds"):
        cascade.merge_state(wide[0], lse, wide[1], lse, out=out)


def test_findings_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty(monkeypatch, rows=1)
    with rocade.emulate(TARGET, on_report="keep") as emulation:
        rocade.merge_state(*state(), *state())
    # What lies behind a tensor may be another one of the call, such as an output that is read too early.
    found = {report.check for report in emulation.results[0].errors}
    assert found - {"uninitialised"} == {"bounds"}
    with rocade.emulate(TARGET, checks="none") as emulation:
        rocade.merge_state(*state(), *state(), out=state())
    assert emulation.results[0].errors == ()


def test_inputs_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that wrote to an input would be found even if it put back what was there."""
    true = _states.Gpu.kernel

    class Swapped:
        def __init__(self, launcher: Launcher) -> None:
            self._launcher = launcher
            self.arguments = launcher.arguments

        def launch(
            self,
            grid: tuple[int, int, int],
            block: int,
            args: Arguments,
            reads: tuple[object, ...],
            writes: tuple[object, ...],
        ) -> None:
            self._launcher.launch(grid, block, args, (*reads, *writes), ())

    monkeypatch.setattr(_states.Gpu, "kernel", lambda *given: Swapped(true(*given)))
    with rocade.emulate(TARGET), pytest.raises(EmulationError, match="read-only"):
        rocade.merge_state(*state(), *state())


def test_settings_reach_the_emulator() -> None:
    with rocade.emulate(TARGET, schedule="random", seed=5, quantum=9, threads=2) as emulation:
        rocade.merge_state(*state(), *state())
    assert emulation.results[0].settings == {"schedule": "random", "quantum": 9, "seed": 5, "threads": 2}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": "gfx90a"}, "target: got 'gfx90a', expected one of 'gfx942'"),
        ({"target": "sm_90"}, "target: got 'sm_90'"),
        ({"target": "cpu"}, "target: got 'cpu'"),
        ({"target": None}, "target: got None"),
        ({"schedule": "fair"}, "schedule: got 'fair', expected one of 'round_robin'"),
        ({"checks": ["waits", "luck"]}, r"checks: got \['luck'\]"),
        ({"checks": "luck"}, r"checks: got \['luck'\]"),
        ({"checks": 3}, "checks: got 3"),
        ({"quantum": 0}, "quantum: got 0"),
        ({"seed": "1"}, "seed: got '1', expected an int"),
        ({"threads": True}, "threads: got True"),
        ({"on_report": "ignore"}, "on_report: got 'ignore', expected 'raise' or 'keep'"),
    ],
)
def test_a_wrong_argument_is_named_at_once(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rocade.emulate(**{"target": TARGET, **given})


def test_without_the_emulator_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install \./packages/emulator"):
        rocade.emulate(TARGET)

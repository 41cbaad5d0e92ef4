"""Single calls on an idle GPU that a graph captures: they use a known plan once its list has arrived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tests.kernels.runtime import stub
from tests.rocade.backends.idle_driver import Driver
from tests.rocade.backends.single_calls import Call, decode, driven, fields, made_plans, prefill

from rocade import _single
from rocade.backends import _gpu
from rocade.backends.hip import _dlpack, _list, _repeats
from rocade.backends.hip._attention import AttentionPlan
from rocade_kernels import hip_abi
from rocade_kernels.work_lists import WorkFacts, WorkPlanner

pytestmark = pytest.mark.skipif(not _dlpack.read_address(), reason="this torch has no DLPack exchange table")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with driven(monkeypatch) as made:
        yield made


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[AttentionPlan]:
    return made_plans(monkeypatch)


class Capture:
    """An idle GPU whose streams are marked and captured."""

    def __init__(self, driver: Driver) -> None:
        self.gpu: Any = driver.emulation.device
        self.gpu.mark = self.mark
        self.passed, self.questions = True, 0

    def mark(self) -> Any:  # noqa: ANN401  a function
        assert not self.gpu.is_capturing(), "an event that only replays record"
        return self.asked

    def asked(self) -> bool:
        assert not self.gpu.is_capturing(), "a question that a capture forbids"
        self.questions += 1
        return self.passed

    @contextmanager
    def capturing(self, stream: int = 7) -> Iterator[None]:
        before = self.gpu.stream, self.gpu.is_capturing
        self.gpu.stream, self.gpu.is_capturing = lambda: stream, lambda: True
        yield
        self.gpu.stream, self.gpu.is_capturing = before


@pytest.fixture
def capture(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Capture:
    monkeypatch.setattr(_repeats, "_LENT", [])
    return Capture(driver)


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the lists that are sent to the GPU."""
    sent: list[int] = []
    write = _list._write

    def count(planner: WorkPlanner, facts: WorkFacts, home: torch.Tensor) -> torch.Tensor:
        sent.append(facts.bytes)
        return write(planner, facts, home)

    monkeypatch.setattr(_list, "_write", count)
    return sent


@pytest.mark.parametrize("call", [prefill, decode])
def test_a_captured_call_sends_no_list_once_the_known_one_has_arrived(
    driver: Driver, capture: Capture, plans: list[AttentionPlan], lists: list[int], call: Call
) -> None:
    capture.passed = False
    call()
    call()
    with capture.capturing():
        call()
    assert len(lists) == 2  # it may not have arrived
    assert not _repeats._LENT
    capture.passed = True
    call()
    asked = capture.questions
    eager = fields(driver.taken()[-2:])
    with capture.capturing(), capture.capturing(8):
        call()
        call()
    assert len(lists) == 2
    assert list(_repeats._LENT) == [plans[0]]
    captured = driver.taken()
    assert [numbers[-1] for _, numbers, _ in captured] == [8] * 4
    names = ("items", "first_item", "q_row", "k_row", "scale", "merges", "pieces", "count", "group")
    for launches in (fields(captured[:2]), fields(captured[2:])):
        for (name, numbers, block), (name2, numbers2, block2) in zip(launches, eager, strict=True):  # type: ignore[misc]
            assert (name, numbers[:-1]) == (name2, numbers2[:-1])
            shared = [f for f in names if f in block]
            assert {f: block[f] for f in shared} == {f: block2[f] for f in shared}
            assert len(shared) >= 4
    call()
    assert capture.questions == asked == 2  # after the first success it is not asked again
    assert len(lists) == 2


def test_a_capture_right_after_the_first_call_plans_anew(capture: Capture, lists: list[int]) -> None:
    prefill()
    with capture.capturing():
        prefill()
    assert len(lists) == 2
    assert not capture.questions


def test_a_list_that_was_captured_itself_is_never_marked(capture: Capture, lists: list[int]) -> None:
    prefill(keys=2999)  # loads the kernels
    with capture.capturing():
        prefill()
        prefill()
    assert len(lists) == 3
    prefill()
    prefill()
    assert len(lists) == 4
    assert capture.questions == 1


def test_results_of_a_captured_call_are_in_memory_of_the_capture(
    driver: Driver, capture: Capture, plans: list[AttentionPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        prefill()
    driver.taken()
    kept: list[torch.Tensor] = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **o: kept.append(empty(*a, **o)) or kept[-1])
    with capture.capturing():
        for _ in range(2):
            prefill()
    assert len(plans) == 1
    launches = driver.taken()
    blocks = [hip_abi.AttentionArgs.from_buffer_copy(block) for _, _, block in launches[::2]]
    merges = [hip_abi.MergePartialsArgs.from_buffer_copy(block) for _, _, block in launches[1::2]]
    homes = {t.data_ptr() for t in kept}
    for block, then in zip(blocks, merges, strict=True):
        assert {block.partial_out, block.out, block.lse} <= homes
        assert (block.partial_out, block.partial_lse) == (then.partial_out, then.partial_lse)
    assert blocks[0].partial_out != blocks[1].partial_out
    assert plans[0]._scratch is None  # the pool gives it to the graph's other calls


def test_a_plan_outlives_its_place_among_the_known_ones_for_a_graph(
    capture: Capture, plans: list[AttentionPlan], lists: list[int]
) -> None:
    for _ in range(2):
        decode(3000)
    with capture.capturing():
        decode(3000)
    for keys in range(1, _single._KEPT + 2):
        decode(keys)
    lent = plans[0]
    assert lent not in [known.plan for known in _single._local.known.values()]
    assert list(_repeats._LENT) == [lent]
    decode(3000)
    with capture.capturing():
        decode(3000)  # its new list may not have arrived
    assert len(lists) == _single._KEPT + 4
    decode(3000)
    with capture.capturing():
        decode(3000)
    assert len(lists) == _single._KEPT + 4
    assert list(_repeats._LENT) == [lent, plans[-2]]


def test_another_current_device_captures_no_known_plan(capture: Capture, lists: list[int]) -> None:
    for _ in range(2):
        prefill()
    with capture.capturing():
        capture.gpu.is_current = lambda: False
        assert not _single._local.known.popitem()[1].plan.lend_to_graph()
    assert not _repeats._LENT


def test_a_driver_that_cannot_tell_leaves_captures_as_they_were(capture: Capture, lists: list[int]) -> None:
    """As in the child of a fork, where launches then say why."""

    def fails() -> bool:
        capture.questions += 1
        raise RuntimeError("not now")

    capture.gpu.mark = lambda: fails
    for _ in range(4):
        prefill()
    with capture.capturing():
        prefill()
    assert len(lists) == 2
    assert capture.questions == 1
    assert not _repeats._LENT


def test_calls_with_a_mask_are_not_marked(capture: Capture) -> None:
    capture.gpu.mark = lambda: pytest.fail("no call shares it")
    prefill(20, 100, custom_mask=torch.ones(20, 100, dtype=torch.bool))


def test_a_real_stream_is_marked_by_an_event_and_asked_in_relaxed_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = stub.install("nvidia", monkeypatch)
    said: list[object] = []

    class Event:
        def record(self, stream: str) -> None:
            said.append(stream)

        def query(self) -> bool:
            said.append([line.split()[-1] for line in driver.calls if "CaptureMode" in line])
            return len(said) > 2

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: f"stream of {index}")
    passed = _gpu._marks(1, "nvidia")()
    assert said == ["stream of 1"]
    assert not passed()
    assert passed()
    assert said[1:] == [["2"], ["2", "0", "2"]]

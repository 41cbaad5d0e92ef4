"""Calls of several launches: repeated in order with other addresses and numbers, or not at all."""

from __future__ import annotations

import ctypes
import gc
import math
from collections.abc import Sequence

import pytest
import torch
from tests.kernels.runtime.test_replay import Driver, read

from rocade_kernels.runtime import Arguments, Calls, Launched, Place, Step, StepLayout


class First(ctypes.Structure):
    _fields_ = [
        ("a", ctypes.c_void_p),
        ("number", ctypes.c_int64),
        ("b", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("scale", ctypes.c_float),
        ("out_scale", ctypes.c_float),
    ]


PLACES = (
    Place(First.a.offset, 0),
    Place(First.b.offset, 1),
    Place(First.second.offset, 1, 8),
    Place(First.out.offset, 2),
)
WRITTEN = 0b100
SCALES = (First.scale.offset, First.out_scale.offset)


def tensors() -> list[torch.Tensor]:
    return [torch.zeros(4, 8), torch.zeros(16), torch.zeros(4, 8)]


class Made:
    """A driver, and a call of two launches made with it."""

    def __init__(self) -> None:
        self.driver, self.calls, self.tensors = Driver(), Calls(read()), tensors()
        self.steps = [self.step(1), self.step(2)]

    def step(
        self,
        number: int,
        places: Sequence[Place] = PLACES,
        scales: tuple[int, int] = SCALES,
        *,
        early: bool = False,
    ) -> Step:
        block = First()
        block.a, block.b, block.out = (t.data_ptr() for t in self.tensors)
        block.second = block.b + 8
        block.number = number
        args = Arguments(block)
        by = self.driver.early_address if early else 0
        launched = Launched(number, self.driver.address, (number, 1, 1), 64, 0, args, by)
        return Step(launched, StepLayout.of(places, *scales))

    def learn(self, steps: Sequence[Step] | None = None) -> bool:
        return self.calls.learn(self.steps if steps is None else steps, self.tensors, WRITTEN)

    @property
    def seen(self) -> list[tuple[int, First]]:
        return [(given[0], First.from_buffer_copy(bytes(block))) for given, _, block in self.driver.seen]


def test_launches_are_made_in_order_with_the_addresses_and_numbers_of_the_call() -> None:
    made, again = Made(), tensors()
    assert made.learn()
    assert made.calls.run(0xABC, 0.25, -3.0, again)
    assert [handle for handle, _ in made.seen] == [1, 2]
    for number, block in made.seen:
        assert [block.a, block.b, block.out] == [t.data_ptr() for t in again]
        assert block.second == again[1].data_ptr() + 8
        assert (block.number, block.scale, block.out_scale) == (number, 0.25, -3.0)
    assert {stream for _, stream, _ in made.driver.seen} == {0xABC}


def test_every_launch_may_start_early_or_not_by_itself() -> None:
    made = Made()
    assert made.learn([made.step(1), made.step(2, early=True), made.step(3)])
    assert made.calls.run(0xABC, 0.25, -3.0, made.tensors)
    assert [numbers for numbers, _, _ in made.driver.seen] == [(n, n, 1, 1, 64, 1, 1, 0) for n in (1, 2, 3)]
    assert {stream for _, stream, _ in made.driver.seen} == {0xABC}
    assert [block.scale for _, block in made.seen] == [0.25] * 3
    assert made.driver.early == [2]


def test_a_launch_without_numbers_keeps_its_block() -> None:
    made = Made()
    assert made.learn([made.step(5, scales=(-1, -1))])
    assert made.calls.run(0, 7.0, 8.0, made.tensors)
    ((_, block),) = made.seen
    assert (block.scale, block.out_scale) == (0.0, 0.0)


@pytest.mark.parametrize("scale", [math.inf, math.nan, 1e39, -1e39])
def test_numbers_that_no_float_holds_are_left_to_the_ordinary_way(scale: float) -> None:
    made = Made()
    assert made.learn()
    assert not made.calls.run(0, scale, 1.0, made.tensors)
    assert not made.calls.run(0, 1.0, scale, made.tensors)
    assert not made.driver.seen


def test_a_tensor_that_is_written_shares_memory_with_no_other() -> None:
    made = Made()
    assert made.learn()
    a, b, _ = tensors()
    assert not made.calls.run(0, 1.0, 1.0, [a, b, a])
    assert made.calls.run(0, 1.0, 1.0, [a, a.view(-1)[:16], tensors()[2]])
    assert not made.calls.run(0, 1.0, 1.0, [a, torch.zeros(16, dtype=torch.int32), tensors()[2]])


def test_the_first_launch_that_fails_ends_the_call() -> None:
    made = Made()
    assert made.learn()
    made.driver.code = 700
    assert not made.calls.run(0, 1.0, 1.0, made.tensors)
    assert len(made.driver.seen) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"places": [Place(-8, 0)]},
        {"places": [Place(ctypes.sizeof(First) - 4, 0)]},
        {"places": [Place(0, 3)]},
        {"places": [Place(0, -1)]},
        {"places": [Place(0, 1)]},
        {"scales": (ctypes.sizeof(First) - 3, -1)},
        {"scales": (-1, -2)},
    ],
)
def test_a_step_that_does_not_fit_is_not_learned(change: dict[str, object]) -> None:
    made = Made()
    assert not made.learn([made.step(1), made.step(2, **change)])  # type: ignore[arg-type]
    assert not made.calls.run(0, 1.0, 1.0, made.tensors)


def test_other_numbers_of_tensors_and_no_steps_are_not_learned() -> None:
    made = Made()
    assert not made.learn([])
    made.tensors = made.tensors[:2]
    assert not made.learn()


def test_a_layout_is_learned_once_and_few_are_kept() -> None:
    made = Made()
    assert made.learn()
    assert not made.learn()
    learned = 0
    for rows in range(5, 40):
        made.tensors[2] = torch.zeros(rows, 8)
        learned += made.learn([made.step(rows)])
    assert 0 < learned < 16
    assert made.calls.run(0, 1.0, 1.0, tensors())


@pytest.mark.parametrize("given", [None, 3, "text"])
def test_what_is_no_tensor_is_refused(given: object) -> None:
    made = Made()
    assert made.learn()
    with pytest.raises(RuntimeError):
        made.calls.run(0, 1.0, 1.0, [given, *made.tensors[1:]])


def test_what_is_learned_goes_away_with_its_owner() -> None:
    for _ in range(1000):
        made = Made()
        assert made.learn()
    del made
    gc.collect()

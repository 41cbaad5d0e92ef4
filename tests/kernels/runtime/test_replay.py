"""Replay: a learned launch is repeated for tensors of the same layout, with their addresses; no others."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import c_int, c_uint, c_void_p

import pytest
import torch

from rocade_kernels.runtime import Arguments, Launched, Place, Replay

Launch = ctypes.CFUNCTYPE(c_int, c_void_p, *[c_uint] * 7, c_void_p, ctypes.POINTER(c_void_p), c_void_p)
LaunchEarly = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, ctypes.POINTER(c_void_p), c_void_p)
OP = 7


class Args(ctypes.Structure):
    _fields_ = [
        ("a", c_void_p),
        ("number", ctypes.c_int64),
        ("b", c_void_p),
        ("second", c_void_p),
        ("out", c_void_p),
        ("scratch", c_void_p),
    ]


PLACES = (
    Place(Args.a.offset, 0),
    Place(Args.b.offset, 1),
    Place(Args.second.offset, 1, 64),
    Place(Args.out.offset, 2),
    Place(Args.scratch.offset, 3),
)
WRITTEN = 0b0100


def read() -> int:
    """The function of torch's DLPack exchange table that reads a tensor: the sixth field of eight bytes."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        pytest.skip("this torch has no DLPack exchange table")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer(capsule, b"dlpack_exchange_api")
    return (c_void_p * 6).from_address(table)[5] or 0


class Driver:
    """A launch function that keeps what it is given."""

    def __init__(self) -> None:
        self.code = 0
        self.seen: list[tuple[tuple[int, ...], int, Args]] = []
        self.function = Launch(self._launch)
        self.early: list[int] = []  # functions of launches that may start early
        self.early_function = LaunchEarly(self._launch_early)

    def _launch(self, *given: object) -> int:
        block = Args.from_buffer_copy(ctypes.string_at(given[9][0], ctypes.sizeof(Args)))  # type: ignore[index]
        numbers = tuple(int(x or 0) for x in given[:8])  # type: ignore[call-overload]
        self.seen.append((numbers, int(given[8] or 0), block))  # type: ignore[call-overload]
        return self.code

    @property
    def address(self) -> int:
        return ctypes.cast(self.function, c_void_p).value or 0

    def _launch_early(self, config: int, function: int, params: object, extra: object) -> int:
        """As `_launch`, for CUlaunchConfig with the one attribute that lets a kernel start early."""
        attribute, count = (ctypes.c_uint64 * 2).from_address(config + 40)
        assert count & 0xFFFFFFFF == 1
        assert (c_int * 3).from_address(attribute)[:] == [6, 0, 1]
        self.early.append(function)
        stream = ctypes.c_uint64.from_address(config + 32).value
        return self._launch(function, *(c_uint * 7).from_address(config), stream, params, extra)

    @property
    def early_address(self) -> int:
        return ctypes.cast(self.early_function, c_void_p).value or 0


class Learned:
    """A replay that has learned one launch for `tensors`."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.driver, self.replay = Driver(), Replay(read())
        self.runner = self.replay.runner(4)
        self.args = Arguments(Args())
        self.fill(tensors)
        self.launched = Launched(0x1234, self.driver.address, (3, 2, 1), 256, 64, self.args)
        assert self.replay.learn(OP, self.launched, PLACES, tensors, WRITTEN)

    def run(self, op: int, stream: int, *tensors: object) -> bool:
        return not self.runner(op, stream, *tensors)

    def fill(self, tensors: list[torch.Tensor]) -> None:
        block = self.args.block
        block.number = 99
        block.a, block.b, block.out, block.scratch = (t.data_ptr() for t in tensors)
        block.second = tensors[1].data_ptr() + 64


def tensors() -> list[torch.Tensor]:
    return [torch.zeros(4, 8), torch.zeros(64, dtype=torch.int32), torch.zeros(4, 8).half(), torch.zeros(3)]


@pytest.fixture
def learned() -> Iterator[Learned]:
    given = tensors()
    made = Learned(given)
    yield made
    del given


def test_a_launch_that_may_start_early_does_so_again(learned: Learned) -> None:
    given = tensors()
    learned.fill(given)
    launched = learned.launched._replace(early=learned.driver.early_address)
    assert learned.replay.learn(OP + 1, launched, PLACES, given, WRITTEN)
    for op, early in ((OP, []), (OP + 1, [0x1234])):
        assert learned.run(op, 0xABC, *tensors())
        assert learned.driver.early == early
    first, again = learned.driver.seen
    assert first[:2] == again[:2]


def test_other_tensors_of_the_same_layout_are_launched_with_their_addresses(learned: Learned) -> None:
    again = tensors()
    assert learned.run(OP, 0xABC, *again)
    ((numbers, stream, block),) = learned.driver.seen
    assert numbers == (0x1234, 3, 2, 1, 256, 1, 1, 64)
    assert stream == 0xABC
    assert block.number == 99
    assert [block.a, block.b, block.out, block.scratch] == [t.data_ptr() for t in again]
    assert block.second == again[1].data_ptr() + 64


def changed(which: str) -> list[torch.Tensor]:
    given = tensors()
    match which:
        case "shape":
            given[0] = torch.zeros(5, 8)
        case "stride":
            given[0] = torch.zeros(8, 4).T
        case "dtype":
            given[1] = torch.zeros(64)
        case "dimensions":
            given[0] = torch.zeros(32)
        case "alignment":
            given[3] = torch.zeros(4)[1:]
        case "empty":
            given[0] = torch.zeros(0, 8)
        case "out is an input":
            given[2] = torch.zeros(4, 8).half()
            given[3] = given[2].flatten().view(torch.float32)[:3]
        case "out within an input":
            base = torch.zeros(256)
            given[0] = base[:32].view(4, 8)
            given[2] = base[16:32].view(torch.float16).view(4, 8)
    return given


@pytest.mark.parametrize(
    "which",
    [
        "shape",
        "stride",
        "dtype",
        "dimensions",
        "alignment",
        "empty",
        "out is an input",
        "out within an input",
    ],
)
def test_any_other_layout_is_left_to_the_ordinary_way(learned: Learned, which: str) -> None:
    assert not learned.run(OP, 0, *changed(which))
    assert not learned.driver.seen


def test_another_kind_of_call_is_not_repeated(learned: Learned) -> None:
    assert not learned.run(OP + 1, 0, *tensors())


@pytest.mark.parametrize("given", [None, 3, "text", [1.0]])
def test_what_is_no_tensor_is_refused(learned: Learned, given: object) -> None:
    with pytest.raises(RuntimeError):
        learned.run(OP, 0, given, *tensors()[1:])
    assert learned.run(OP, 0, *tensors())


def test_a_refused_launch_is_left_to_the_ordinary_way_which_tells_why(learned: Learned) -> None:
    learned.driver.code = 700
    assert not learned.run(OP, 0, *tensors())


def test_inputs_may_share_memory(learned: Learned) -> None:
    given = tensors()
    given[1] = torch.zeros(64, dtype=torch.int32)
    given[3] = given[1].view(torch.float32)[:3]
    assert learned.run(OP, 0, *given)


def test_a_launch_of_converted_copies_is_not_learned() -> None:
    given = tensors()
    learned = Learned(given)
    other = tensors()
    assert not learned.replay.learn(OP, learned.launched, PLACES, [other[0], *given[1:]], WRITTEN)


@pytest.mark.parametrize(
    "place", [Place(-8, 0), Place(ctypes.sizeof(Args) - 4, 0), Place(0, 4), Place(0, -1)]
)
def test_a_place_outside_of_the_block_or_of_the_tensors_is_refused(learned: Learned, place: Place) -> None:
    assert not learned.replay.learn(OP, learned.launched, [place], tensors(), WRITTEN)


def test_learning_again_replaces(learned: Learned) -> None:
    given = tensors()
    learned.fill(given)
    learned.args.block.number = 7
    assert learned.replay.learn(OP, learned.launched, PLACES, given, WRITTEN)
    assert learned.run(OP, 0, *tensors())
    assert learned.driver.seen[-1][2].number == 7


def test_what_is_forgotten_is_not_repeated(learned: Learned) -> None:
    learned.replay.forget()
    assert not learned.run(OP, 0, *tensors())


def test_a_child_of_a_fork_starts_with_nothing(learned: Learned) -> None:
    child = os.fork()
    if not child:
        os._exit(1 if learned.run(OP, 0, *tensors()) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert learned.run(OP, 0, *tensors())


def test_many_layouts_do_not_fill_memory() -> None:
    driver, replay = Driver(), Replay(read())
    run, args = replay.runner(4), Arguments(Args())
    launched = Launched(1, driver.address, (1, 1, 1), 64, 0, args)
    for length in range(1, 5000):
        given = [torch.zeros(length), *tensors()[1:]]
        args.block.a = given[0].data_ptr()
        assert replay.learn(OP, launched, PLACES[:1], given, 0)
    assert run(OP, 0, torch.zeros(4999), *tensors()[1:]) == 0
    assert run(OP, 0, torch.zeros(1), *tensors()[1:]) != 0

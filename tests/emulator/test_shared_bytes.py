"""Tensors that share bytes, and marks on them: a kernel may do with a byte what it may with one of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator import asm_kernels

import rocade_emulator as emu
from rocade_emulator import ReadOnly, Undefined

_START = "s_load_dwordx2 s[2:3], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32 v1, 2, v0\n"
BODIES = {
    "store": f"{_START}global_store_dword v1, v0, s[2:3]\n",
    "add": f"{_START}global_load_dword v2, v1, s[2:3]\ns_waitcnt vmcnt(0)\nv_add_u32 v2, v2, v0\n"
    "global_store_dword v1, v2, s[2:3]\n",
}
READ, REFUSED = "read of memory that was never written", "write to a read-only range"
Tensor = NDArray[np.uint32]


@functools.cache
def program() -> emu.Program:
    return asm_kernels.program("gfx942", BODIES)


def found(name: str, first: object, *buffers: object) -> list[tuple[str, int, int]]:
    result = emu.launch(program(), name, 1, 64, [first], buffers=buffers)
    return [(r.detail, r.lane, r.count) for r in result.errors]


@pytest.fixture
def x() -> Tensor:
    return np.zeros(64, np.uint32)


def test_undefined_as_argument_and_as_buffer(x: Tensor) -> None:
    assert found("add", Undefined(x)) == [(READ, 0, 64)]
    assert found("add", x.ctypes.data, Undefined(x)) == [(READ, 0, 64)]
    assert found("store", x.ctypes.data, Undefined(x)) == []
    assert found("add", x.ctypes.data, x) == []
    assert (x == 2 * np.arange(64)).sum() >= 1, "it ran on the tensor itself"


def test_a_part_that_may_be_written(x: Tensor) -> None:
    assert found("store", ReadOnly(x), x.reshape(8, 8)) == []
    assert found("store", ReadOnly(x), x[:32]) == [(REFUSED, 32, 32)]
    assert found("store", x[:64], ReadOnly(x)) == []


def test_a_part_that_is_defined(x: Tensor) -> None:
    assert found("add", Undefined(x), x[:32]) == [(READ, 32, 32)]
    assert found("add", Undefined(x), x[:32], x[32:]) == []
    assert found("add", Undefined(x), x) == []


def test_marks_that_leave_nothing_to_do(x: Tensor) -> None:
    fixed = x.copy()
    fixed.setflags(write=False)
    for marked in (ReadOnly(Undefined(x)), Undefined(ReadOnly(x)), Undefined(fixed)):
        with pytest.raises(
            emu.ArgumentError, match=r"argument 0: .* marked as undefined and may not be written"
        ):
            found("store", marked)


def test_a_huge_buffer_may_be_undefined() -> None:
    huge = emu.SparseBuffer(1 << 40)
    assert found("store", Undefined(huge)) == []
    assert found("add", Undefined(huge)) == [(READ, 0, 64)]


BAD: list[tuple[Any, str]] = [
    (np.zeros(64, ">u4"), "big-endian"),
    (np.zeros(64, object), "Python objects"),
    (ReadOnly(None), "a NoneType was given"),
    (Undefined(3), "a int was given"),
    (np.float32(1), "a float32; expected a tensor"),
]


@pytest.mark.parametrize(("value", "text"), BAD)
def test_what_is_no_tensor(value: object, text: str) -> None:
    with pytest.raises(emu.ArgumentError, match=f"argument 0.*{text}"):
        found("store", value)


def test_buffers_that_are_none(x: Tensor) -> None:
    with pytest.raises(emu.ArgumentError, match="buffer 1: a int was given"):
        found("store", x, x, 5)
    with pytest.raises(ValueError, match="buffers is a single tensor"):
        emu.launch(program(), "store", 1, 64, [x], buffers=x)


def test_a_number_of_numpy_is_an_address(x: Tensor) -> None:
    assert found("store", np.uint64(x.ctypes.data), x) == []
    assert (x == np.arange(64)).all()


def test_an_address_in_a_hole_is_named(x: Tensor) -> None:
    (first, *_) = emu.launch(program(), "store", 1, 64, [np.zeros((64, 2), np.uint32)[:, 0]]).errors
    assert first.where == "byte 4 of argument 0, in a hole between its elements"

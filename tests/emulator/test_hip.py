"""Small HIP kernels against numpy: right results, under every schedule, without a finding."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from tests.emulator.hip_kernels import TARGETS, program

import rocade_emulator as emu

Dims = int | tuple[int, ...]

SCHEDULES = (
    {},
    {"quantum": 7},
    {"schedule": "run_to_barrier"},
    {"schedule": "random", "quantum": 9, "seed": 3},
)


def launch(target: str, kernel: str, grid: Dims, block: Dims, args: list[Any], **options: Any) -> emu.Result:
    return emu.launch(program(target), kernel, grid, block, args, **options)


def clean(result: emu.Result) -> None:
    assert not result.reports, result.describe()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def integer_reference(x: int, y: int) -> int:
    mask = (1 << 64) - 1

    def signed(value: int, bits: int) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> bits - 1 else value

    lo, hi = x & 0xFFFFFFFF, y >> 32 | 1
    r = x * y + (x >> (y & 63)) - (y << (x & 31)) & mask
    r ^= lo // hi << 32 | lo % hi
    quotient = abs(signed(x, 64)) // hi
    r += -quotient if signed(x, 64) < 0 else quotient
    r &= mask
    r ^= x.bit_count() + 32 - hi.bit_length() << 20
    product = signed(signed(lo, 16) * signed(hi, 16), 32)
    r += product + (int(f"{lo:032b}"[::-1], 2) >> 7)
    return r & mask


@pytest.mark.parametrize("target", TARGETS)
def test_integers(target: str, rng: np.random.Generator) -> None:
    a, b = (rng.integers(0, 1 << 64, 500, np.uint64) for _ in range(2))
    out = np.zeros_like(a)
    clean(launch(target, "integers", 2, 256, [a, b, out, 500], undefined=(2,)))
    assert [int(x) for x in out] == [integer_reference(int(x), int(y)) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("target", TARGETS)
def test_floats(target: str, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal(300).astype(np.float32) for _ in range(2))
    out, wide = np.zeros(300, np.float32), np.zeros(300)
    clean(launch(target, "floats", 2, 256, [a, b, out, wide, 300], undefined=(2, 3)))
    # Division and square root are correctly rounded, so every step of numpy's float32 is the same.
    wanted = np.sqrt(np.abs(a)) / b + np.floor(a * np.float32(3)) + np.minimum(a, b)
    np.testing.assert_array_equal(out, wanted)
    x, y = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(wide, np.sqrt(np.abs(x)) / y + (x * y + x), rtol=1e-14)


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("target", TARGETS)
def test_transpose_under_every_schedule(
    target: str, options: dict[str, Any], rng: np.random.Generator
) -> None:
    x = rng.standard_normal((64, 64)).astype(np.float32)
    out = np.zeros_like(x)
    clean(launch(target, "transpose", 4, 256, [x, out, 64], undefined=(1,), **options))
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("target", TARGETS)
def test_block_sum_under_every_schedule(target: str, options: dict[str, Any]) -> None:
    x = np.arange(3 * 256, dtype=np.float32)
    out = np.zeros(3, np.float32)
    clean(launch(target, "block_sum", 3, 256, [x, out], undefined=(1,), **options))
    np.testing.assert_array_equal(out, x.reshape(3, 256).sum(1))


@pytest.mark.parametrize("target", TARGETS)
def test_scratch_is_private_to_a_lane(target: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 37, 100).astype(np.int32)
    out = np.zeros(100, np.int32)
    clean(launch(target, "scratch", 2, 64, [x, out, 100]))
    np.testing.assert_array_equal(out, x**2 + np.arange(100))


@pytest.mark.parametrize(("kernel", "m", "k"), [("mfma_16", 16, 16), ("mfma_32", 32, 8)])
@pytest.mark.parametrize("target", TARGETS)
def test_mfma(target: str, kernel: str, m: int, k: int, rng: np.random.Generator) -> None:
    a, b = rng.integers(-8, 8, (m, k)).astype(np.float16), rng.integers(-8, 8, (k, m)).astype(np.float16)
    out = np.zeros((m, m), np.float32)
    clean(launch(target, kernel, 1, 64, [a, b, out], undefined=(2,)))
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"schedule": "random", "quantum": 5}])
@pytest.mark.parametrize("target", TARGETS)
def test_workgroups_that_wait_for_each_other(target: str, options: dict[str, Any]) -> None:
    flags, order = np.zeros(12, np.uint32), np.zeros(12, np.uint32)
    clean(launch(target, "relay", 12, 64, [flags, order], **options))
    np.testing.assert_array_equal(order, 1 + np.cumsum(np.arange(12)))


@pytest.mark.parametrize("target", TARGETS)
def test_waiting_for_a_later_workgroup_needs_it_in_residence(target: str) -> None:
    flags = np.zeros(6, np.uint32)
    clean(launch(target, "wait_for_last", 6, 64, [flags, 6], resident=6))
    flags[:] = 0
    with pytest.raises(emu.EmulationError, match="step limit of 20000"):
        launch(target, "wait_for_last", 6, 64, [flags, 6], resident=2, step_limit=20000)


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_beyond_32_bits(target: str) -> None:
    size = 6 << 30  # elements; 24 GiB that take two pages
    buffer = emu.SparseBuffer(size * 4)
    x = buffer.numpy(np.float32, (size,))
    x[(1 << 32) + 5] = 7.5
    clean(launch(target, "far_copy", 1, 64, [x, x, (1 << 32) + 5, (5 << 30) + 3]))
    assert x[(5 << 30) + 3] == 7.5
    result = launch(target, "far_copy", 1, 64, [x, x, size, 0])
    assert [report.check for report in result.errors] == ["bounds"]


@pytest.mark.parametrize("target", TARGETS)
def test_holes_of_a_view_are_out_of_bounds(target: str) -> None:
    x, out = np.ones((4, 100), np.float32), np.zeros((4, 100), np.float32)
    args = [x[:, :70], out[:, :70], 70, 100]
    clean(launch(target, "copy_rows", 4, 64, [*args, 0]))
    result = launch(target, "copy_rows", 4, 64, [*args, 1])
    assert {(report.check, report.lane) for report in result.errors} == {("bounds", 70 % 64)}
    # The last row has nothing behind it: the report says how far off it is.
    assert any("argument 0" in report.where for report in result.errors), result.describe()


@pytest.mark.parametrize("target", TARGETS)
def test_writing_a_read_only_tensor(target: str) -> None:
    x = np.ones((1, 64), np.float32)
    out = np.zeros((1, 64), np.float32)
    result = launch(target, "copy_rows", 1, 64, [x, emu.ReadOnly(out), 64, 64, 0])
    assert [report.detail for report in result.errors] == ["write to a read-only range"]
    assert not out.any(), "the emulator must not have written it either"


@pytest.mark.parametrize("target", TARGETS)
def test_reading_undefined_memory(target: str) -> None:
    x, out = np.ones((1, 64), np.float32), np.zeros((1, 64), np.float32)
    result = launch(target, "copy_rows", 1, 64, [x, out, 64, 64, 0], undefined=(0,))
    assert {report.check for report in result.errors} == {"uninitialised"}


@pytest.mark.parametrize("target", TARGETS)
def test_a_variable_of_the_code_object_keeps_its_value(target: str) -> None:
    own = emu.Program.from_bytes(program(target)._code_object, target)
    out = np.zeros(1, np.uint32)
    for wanted in (6, 7):
        clean(emu.launch(own, "count_launches", 1, 64, [out]))
        assert out[0] == wanted


class Many(ctypes.Structure):
    _fields_ = (("in", ctypes.c_void_p), ("scale", ctypes.c_float), ("offset", ctypes.c_int))


@pytest.mark.parametrize("target", TARGETS)
def test_a_structure_with_a_pointer(target: str) -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    args = [Many(x.ctypes.data, 2.0, 3), out]
    clean(launch(target, "by_value", 1, 64, args, buffers=[x]))
    np.testing.assert_array_equal(out, 2 * x + 3)
    assert {r.check for r in launch(target, "by_value", 1, 64, args).errors} == {"bounds"}, (
        "x is not registered"
    )


@pytest.mark.parametrize("target", TARGETS)
def test_hidden_arguments_and_dispatch_packet(target: str) -> None:
    out = np.zeros(15, np.uint32)
    clean(launch(target, "launch_shape", (3, 2, 1), (16, 4), [out]))
    wanted = [3, 2, 1, 16, 4, 1, 0, 0, 0, 2, 16, 4, 48, 8, 1]
    np.testing.assert_array_equal(out, wanted)

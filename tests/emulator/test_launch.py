"""The launch call: arguments and settings taken and refused, progress, tracing, interruption, counters."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests import needs
from tests.emulator.hip_kernels import program

import rocade_emulator as emu
from rocade_emulator._kernarg import Shape, dispatch_packet, pack
from rocade_emulator._metadata import Argument, Kernel

torch = needs.module("torch")

Dims = int | tuple[int, ...]


def kernel(*args: Argument) -> Kernel:
    end = max((a.offset + a.size for a in args), default=0)
    return Kernel("k", 0, args, end, 0, 0, 8, 16, 0, 4, 1, 0, 0)


def value(size: int, name: str = "x", offset: int = 0, kind: str = "by_value") -> Argument:
    return Argument(name, kind, offset, size)


ONE = Shape((1, 1, 1), (64, 1, 1))


@pytest.mark.parametrize(
    ("size", "given", "encoded"),
    [
        (4, 7, struct.pack("<i", 7)),
        (4, -7, struct.pack("<i", -7)),
        (4, 0xFFFFFFFF, b"\xff" * 4),
        (8, -1, b"\xff" * 8),
        (1, True, b"\1"),
        (4, 1.5, struct.pack("<f", 1.5)),
        (8, 1.5, struct.pack("<d", 1.5)),
        (2, 1.5, struct.pack("<e", 1.5)),
        (4, np.float32(2.5), struct.pack("<f", 2.5)),
        (8, np.int64(5), struct.pack("<q", 5)),
        (4, np.int64(5), struct.pack("<i", 5)),
        (2, b"ab", b"ab"),
        (4, ctypes.c_uint32(9), struct.pack("<I", 9)),
    ],
)
def test_values_are_converted_by_size(size: int, given: object, encoded: bytes) -> None:
    assert bytes(pack(kernel(value(size)), [given], ONE).data) == encoded


@pytest.mark.parametrize(
    ("arg", "given", "text"),
    [
        (value(4), 1 << 32, "does not fit into 4 bytes"),
        (value(4), -(1 << 31) - 1, "does not fit into 4 bytes"),
        (value(1), 1.5, "holds no float"),
        (value(4), "7", "a str; expected int"),
        (value(4), b"abc", "has 3 bytes, the kernel takes 4"),
        (value(4), np.zeros(3), "a tensor was given"),
        (value(8, kind="global_buffer"), 1.5, "a float; expected a tensor, None or an address"),
        (value(8, kind="global_buffer"), -1, "expected a tensor, None or an address"),
        (value(8, kind="image"), 0, "a image, which is not emulated"),
    ],
)
def test_values_that_do_not_fit_are_refused(arg: Argument, given: object, text: str) -> None:
    with pytest.raises(emu.ArgumentError, match=text):
        pack(kernel(arg), [given], ONE)


def test_arguments_by_name_and_position() -> None:
    k = kernel(value(4, "a", 0), value(8, "p", 8, "global_buffer"), value(4, "b", 16))
    tensor = np.zeros(4, np.float32)
    by_name = pack(k, {"b": 2, "a": 1, "p": tensor}, ONE)
    assert bytes(by_name.data) == struct.pack("<iiQi", 1, 0, tensor.ctypes.data, 2)
    assert bytes(pack(k, bytes(20), ONE).data) == bytes(20)
    assert [b.view.undefined for b in pack(k, [1, tensor, 2], ONE, ["p"]).buffers] == [True]
    for args, text in (
        ({"a": 1, "p": None}, "lacks b"),
        ({"a": 1, "p": None, "b": 2, "c": 3}, "has no argument c"),
        ([1, None], "2 arguments given, kernel k takes 3: a:4, p:8, b:4"),
        (bytes(19), "has 19 bytes, kernel k takes 20"),
        (7, "args is a int"),
    ):
        with pytest.raises(emu.ArgumentError, match=text):
            pack(k, args, ONE)
    with pytest.raises(emu.ArgumentError, match="undefined names 'q'"):
        pack(k, [1, None, 2], ONE, ["q"])


def test_hidden_arguments() -> None:
    kinds = (
        *((f"hidden_block_count_{axis}", 4) for axis in "xyz"),
        *((f"hidden_group_size_{axis}", 2) for axis in "xyz"),
        ("hidden_grid_dims", 2),
        ("hidden_dynamic_lds_size", 4),
        ("hidden_remainder_x", 2),
        ("hidden_heap_v1", 8),
    )
    args, offset = [], 0
    for kind, size in kinds:
        args.append(Argument("", kind, offset, size))
        offset += size
    data = bytes(pack(kernel(*args), [], Shape((5, 6, 1), (32, 2, 1), 4096)).data)
    assert struct.unpack("<3I3HHIHQ", data) == (5, 6, 1, 32, 2, 1, 2, 4096, 0, 0)
    with pytest.raises(emu.ArgumentError, match="hidden_shared_base, which is not emulated"):
        pack(kernel(Argument("", "hidden_shared_base", 0, 4)), [], ONE)


def test_dispatch_packet() -> None:
    packet = dispatch_packet(Shape((5, 6, 1), (32, 2, 1), 128), kernel(value(8)), 0x1234)
    assert len(packet) == 64
    assert struct.unpack_from("<HH3HH3I", packet) == (2, 2, 32, 2, 1, 0, 160, 12, 1)
    assert struct.unpack_from("<II", packet, 24) == (0, 128)
    assert struct.unpack_from("<Q", packet, 40) == (0x1234,)


def transpose(target: str = "gfx942", grid: Dims = 4, block: Dims = 256, **options: Any) -> emu.Result:
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    return emu.launch(program(target), "transpose", grid, block, [x, np.zeros_like(x), 64], **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"grid": 0}, "grid is 0"),
        ({"grid": 1.5}, "grid is 1.5; expected one to three positive ints"),
        ({"grid": (1 << 31) - 1}, "more than 4294967295 work items"),
        ({"threads": 1 << 20}, "threads is 1048576; expected a whole number from 1 to 1024"),
        ({"quantum": 1.5}, "quantum is 1.5; expected a whole number"),
        ({"step_limit": 1 << 64}, "step_limit is 18446744073709551616"),
        ({"checks": 5}, "checks is 5"),
        ({"undefined": 0}, "undefined is 0; expected a list"),
        ({"grid": (1, 2, 3, 4)}, "one to three positive ints"),
        ({"block": 2048}, "allows 1024"),
        ({"schedule": "fair"}, "schedule is 'fair'; expected one of round_robin"),
        ({"checks": ["waits", "typos"]}, r"checks names \['typos'\]; there are all, none, waits"),
        ({"quantum": 0}, "quantum is 0"),
        ({"resident": 0}, "resident is 0"),
        ({"threads": -1}, "threads is -1"),
        ({"step_limit": -1}, "step_limit is -1"),
        ({"dynamic_lds": 62000}, "66224 bytes of LDS are asked for, gfx942 has 65536"),
        ({"dynamic_lds": -1}, "dynamic_lds is -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        transpose(**options)


def test_step_limit_names_where_every_wave_is() -> None:
    with pytest.raises(emu.EmulationError, match=r"step limit of 9000") as caught:
        transpose(grid=64 * 64, step_limit=9000)
    text = str(caught.value)
    assert "workgroup (" in text
    assert "wave 3" in text
    assert caught.value.result.stopped
    assert not caught.value.result.ok


def test_counters_do_not_depend_on_schedule_or_threads() -> None:
    counters = [
        transpose(**options).check().counters
        for options in (
            {},
            {"threads": 3},
            {"schedule": "run_to_barrier"},
            {"resident": 1},
            {"checks": "none"},
        )
    ]
    assert all(found == counters[0] for found in counters)
    found = counters[0]
    assert (found.groups, found.waves) == (4, 16)
    assert found.bytes_written == 64 * 64 * 4
    assert found.instructions == sum(found.by_unit.values())


def elsewhere(content: NDArray[Any], shift: int) -> NDArray[Any]:
    """A copy in memory of its own, `shift` bytes behind a multiple of 256: what an allocator may give."""
    room = bytearray(content.nbytes + 512)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % 256 + shift
    array = np.frombuffer(room, content.dtype, content.size, start).reshape(content.shape)
    array[...] = content
    assert array.ctypes.data % 256 == shift
    return array


@pytest.mark.parametrize("shift", [0, 1, 2, 3, *range(4, 64, 8), 60, 128, 252])
def test_counters_and_findings_do_not_depend_on_where_the_host_puts_memory(shift: int) -> None:
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    numbers = np.arange(100, dtype=np.int32)
    flags = np.zeros(3, np.uint32)

    def runs(shift: int) -> list[emu.Counters]:
        out, picked = elsewhere(np.zeros_like(x), shift), elsewhere(np.zeros_like(numbers), shift)
        order = elsewhere(flags, shift)
        results = [
            emu.launch(program("gfx942"), "transpose", 4, 256, [elsewhere(x, shift), out, 64]),
            emu.launch(program("gfx942"), "scratch", 2, 64, [elsewhere(numbers, shift), picked, 100]),
            emu.launch(program("gfx942"), "relay", 3, 64, [elsewhere(flags, shift), order]),
            # Rows with holes between them, and reads out of bounds.
            emu.launch(
                program("gfx942"), "copy_rows", 64, 64, [elsewhere(x, shift)[:, :50], out[:, :50], 50, 64, 1]
            ),
        ]
        assert [len(result.errors) for result in results] == [0, 0, 0, 2]
        assert order.tolist() == [1, 2, 4]
        return [result.counters for result in results]

    assert runs(shift) == runs(0)


def test_a_view_keeps_its_distance_from_the_start_of_its_allocation() -> None:
    """A GPU's allocator aligns allocations, not what a program cuts out of them."""
    out = np.zeros(256, np.float32)
    for make in (np.zeros, lambda *a: torch.from_numpy(np.zeros(*a))):
        whole = make(512, np.float32)
        views = [whole[k : k + 256] for k in (0, 4, 32)]
        lines = [
            emu.launch(program("gfx942"), "block_sum", 1, 256, [view, out]).check().counters.cache_lines
            for view in views
        ]
        assert lines[0] == lines[2]
        assert lines[1] == lines[0] + 4, "each of the four waves crosses into one more line"


def test_misaligned_accesses_are_those_of_the_kernel() -> None:
    """Crooked memory of the host is no fault; a crooked view of an allocation, or kernel arithmetic, is."""
    room, out = np.zeros(1028, np.uint8), np.zeros(4, np.float32)
    view = room[2:1026].view(np.float32)
    found = emu.launch(program("gfx942"), "block_sum", 1, 256, [view, out])
    assert {(fault.check, fault.detail) for fault in found.errors} == {
        ("alignment", "misaligned global access")
    }
    assert emu.launch(program("gfx942"), "block_sum", 1, 256, [elsewhere(view, 2), out]).ok


def test_checks_can_be_switched_off() -> None:
    x, out = np.ones((4, 100), np.float32), np.zeros((4, 100), np.float32)
    args = [x[:, :70], out[:, :70], 70, 100, 1]
    run = {
        checks: emu.launch(program("gfx942"), "copy_rows", 4, 64, args, checks=checks)
        for checks in ("bounds", "races")
    }
    assert run["bounds"].errors
    assert run["races"].ok


def test_progress_is_told() -> None:
    seen: list[int] = []
    flags = np.zeros(2, np.uint32)
    with pytest.raises(emu.EmulationError):
        emu.launch(
            program("gfx942"), "wait_for_last", 1, 64, [flags, 2], step_limit=3_000_000, progress=seen.append
        )
    assert seen == sorted(seen)
    assert seen[-1] >= 3_000_000


def test_an_exception_in_progress_ends_the_run() -> None:
    class Interrupted(Exception):  # noqa: N818  stands for KeyboardInterrupt
        pass

    def interrupt(steps: int) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        emu.launch(
            program("gfx942"),
            "wait_for_last",
            1,
            64,
            [np.zeros(2, np.uint32), 2],
            step_limit=0,
            progress=interrupt,
        )
    assert not [thread for thread in threading.enumerate() if thread.name == "rocade-emulator"]


def test_trace_shows_every_instruction_with_its_result() -> None:
    steps: list[Any] = []
    out = np.zeros(3, np.float32)
    x = np.arange(3 * 256, dtype=np.float32)
    result = emu.launch(program("gfx942"), "block_sum", 3, 256, [x, out], trace=steps.append)
    assert len(steps) == result.counters.instructions
    loads = [step for step in steps if step.instruction.startswith("global_load") and step.group == (1, 0, 0)]
    (row,) = next(step for step in loads if step.wave == 2).results.values()
    np.testing.assert_array_equal(np.array(row, np.uint32).view(np.float32), x[256 + 128 : 256 + 192])
    assert steps[-1].instruction == "s_endpgm"
    assert steps[0].exec == (1 << 64) - 1
    assert "w0" in steps[0].line()


def test_an_exception_in_trace_ends_the_run() -> None:
    def see(step: Any) -> None:  # noqa: ANN401
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        transpose(trace=see)


def test_a_tensor_given_twice_may_be_written_through_either() -> None:
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    args = [emu.ReadOnly(x), x, 64]
    # In place, tiles overwrite each other's input; what matters is that no write is refused.
    assert not emu.launch(program("gfx942"), "transpose", 4, 256, args).errors

"""The argument block of AITER's forward kernels: where each value stands, and what a driver is given."""

from __future__ import annotations

import ctypes
import struct

import pytest
from tests.emulator import aiter
from tests.kernels.runtime import stub

from rocade_kernels.aiter.kernarg import SIZE, Forward, ForwardBlocks, option_of
from rocade_kernels.build._code_object import kernel_notes
from rocade_kernels.runtime import device

# As AITER's own launcher lays them out.
OFFSETS = {
    "out": 0x000,
    "q": 0x010,
    "k": 0x020,
    "v": 0x030,
    "lse": 0x040,
    "scale": 0x050,
    "max_rows": 0x060,
    "q_row": 0x070,
    "q_tile": 0x080,
    "q_head": 0x090,
    "q_batch": 0x0A0,
    "group": 0x0B0,
    "k_row": 0x0C0,
    "k_head": 0x0D0,
    "k_batch": 0x0E0,
    "option": 0x0F0,
    "has_lse": 0x100,
    "max_keys": 0x110,
    "head_dim_qk": 0x120,
    "head_dim_vo": 0x130,
    "heads": 0x140,
    "v_row": 0x150,
    "v_head": 0x160,
    "v_batch": 0x170,
    "out_row": 0x180,
    "out_head": 0x190,
    "out_batch": 0x1A0,
    "row_counts": 0x1B0,
    "key_counts": 0x1C0,
    "lse_head": 0x1D0,
    "first_rows": 0x1E0,
    "first_keys": 0x1F0,
}
POINTERS = ("out", "q", "k", "v", "lse", "row_counts", "key_counts", "first_rows", "first_keys")
VALUES = Forward(*(1000 + i if name != "scale" else 0.5 for i, name in enumerate(Forward._fields)))


def image() -> bytes:
    return aiter.image("gfx942", "fwd_hd128_bf16_rtne_group")


def test_every_value_stands_where_the_kernel_reads_it() -> None:
    block = ForwardBlocks(image()).make()
    block.fill(*VALUES)
    data = bytes(block)
    assert len(data) == SIZE == 512
    for name, value in VALUES._asdict().items():
        form = "<Q" if name in POINTERS else "<f" if name == "scale" else "<I"
        assert struct.unpack_from(form, data, OFFSETS[name])[0] == value, name


def test_the_metadata_names_the_same_places() -> None:
    """The code object's own list of arguments, where it has one name for a value."""
    _, (kernel,) = kernel_notes(image())
    found = {a[".name"]: a[".offset"] for a in kernel[".args"] if a[".name"] != "pad"}
    assert (found["R"], found["Q"], found["K"], found["V"], found["LSE"]) == (0, 16, 32, 48, 64)
    assert (found["scalar"], found["seq_len"], found["gqa"]) == tuple(
        OFFSETS[name] for name in ("scale", "max_rows", "group")
    )
    assert kernel[".kernarg_segment_size"] == SIZE


def test_a_number_beyond_32_bits_never_wraps() -> None:
    block = ForwardBlocks(image()).make()
    with pytest.raises(struct.error):
        block.fill(*VALUES._replace(k_head=1 << 32))


def test_the_driver_gets_a_pointer_to_each_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they cover the block; the driver copies each by the metadata's offset and size."""
    driver = stub.install("amd", monkeypatch)
    block = ForwardBlocks(image()).make()
    block.fill(*VALUES)
    _, (kernel,) = kernel_notes(image())
    copied = bytearray(SIZE)
    for argument, pointer in zip(kernel[".args"], block.params, strict=True):
        at, size = argument[".offset"], argument[".size"]
        copied[at : at + size] = ctypes.string_at(pointer, size)
    assert bytes(copied) == bytes(block)
    function = device("amd", 0, "gfx942").load(stub.code("amd"))
    function.launch((2, 3, 1), 512, 0, 7, block)
    assert driver.count("hipModuleLaunchKernel") == 1
    assert driver.block(8) == bytes(block)[:8]


@pytest.mark.parametrize(
    ("heads", "rows", "causal", "option"),
    [(8, 100, True, 5), (7, 100, True, 3), (8, 16385, True, 3), (7, 99999, False, 5)],
)
def test_option(heads: int, rows: int, causal: bool, option: int) -> None:
    assert option_of(heads, rows, causal=causal) == option

"""Which bytes a tensor covers: against marking every element of a numpy array by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests import needs

import rocade_emulator as emu
from rocade_emulator._views import View, view_of

torch = needs.module("torch")


def covered(view: View) -> set[int]:
    """All bytes of a view, as its docstring defines them."""
    if not view.sizes:
        return set(range(view.start, view.start + view.size))
    starts = {view.start}
    for size, stride in zip(view.sizes, view.strides, strict=True):
        starts = {start + k * stride for start in starts for k in range(size)}
    return {start + byte for start in starts for byte in range(view.element)}


def bytes_of(array: NDArray[Any]) -> set[int]:
    interface = array.__array_interface__
    starts = {interface["data"][0]}
    for size, stride in zip(array.shape, array.strides, strict=True):
        starts = {start + k * stride for start in starts for k in range(size)}
    return {start + byte for start in starts for byte in range(array.itemsize)} if array.size else set()


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    """Slices, steps (negative ones, too) and permutations of a dense array."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    array = np.zeros(shape, draw(st.sampled_from([np.uint8, np.float16, np.float64])))
    steps = st.sampled_from([-2, -1, 1, 2, 3])
    index = tuple(slice(None, None, draw(steps)) for _ in shape)
    cut = tuple(slice(draw(st.integers(0, n - 1)), None) for n in shape)
    return array[cut][index].transpose(draw(st.permutations(range(len(shape)))))


@given(arrays())
def test_numpy_views_cover_exactly_their_elements(array: NDArray[Any]) -> None:
    view = view_of(array)
    assert covered(view) == bytes_of(array)
    assert view.address == array.__array_interface__["data"][0]
    assert view.strides == tuple(sorted(view.strides, reverse=True))


def test_torch_views() -> None:
    tensor = torch.zeros(4, 6, 8, dtype=torch.bfloat16)
    part = tensor[1:3, :, :5].permute(2, 0, 1)
    view = view_of(part)
    numbers = np.arange(4 * 6 * 8).reshape(4, 6, 8)[1:3, :, :5].ravel()
    base = tensor.data_ptr()
    assert covered(view) == {base + 2 * int(n) + byte for n in numbers for byte in (0, 1)}
    assert view.address == part.data_ptr()


def test_dense_views_have_no_dimensions() -> None:
    assert view_of(np.zeros((3, 4, 5))).sizes == ()
    assert view_of(torch.zeros(3, 4).T).sizes == ()


def test_broadcast_dimensions_cover_nothing_more() -> None:
    array = np.broadcast_to(np.zeros(4, np.float32), (5, 4))
    assert covered(view_of(array)) == bytes_of(array)
    assert not view_of(array).writable, "numpy made it read-only"


def test_empty_tensors() -> None:
    assert view_of(np.zeros((0, 4))).size == 0
    assert view_of(torch.zeros(3, 0)).size == 0


def test_views_that_overlap_themselves_are_checked_as_a_whole() -> None:
    array = np.lib.stride_tricks.sliding_window_view(np.zeros(10, np.float32), 4)
    view = view_of(array)
    assert (view.size, view.sizes) == (40, ())


def test_flags() -> None:
    array = np.zeros(3)
    assert view_of(array).writable
    assert not view_of(emu.ReadOnly(array)).writable
    array.flags.writeable = False
    assert not view_of(array).writable


def test_device_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match="tensor on meta"):
        view_of(torch.zeros(3, device="meta"))


def test_sparse_buffer() -> None:
    buffer = emu.SparseBuffer(1 << 40)
    view = view_of(buffer)
    assert (view.start, view.size, view.writable) == (buffer.address, 1 << 40, True)
    rows = buffer.numpy(np.float32, (4, 16), strides=(1 << 37, 4), offset=1 << 20)
    rows[3, 5] = 2.5
    assert buffer.read(4, (1 << 20) + 3 * (1 << 37) + 20) == np.float32(2.5).tobytes()
    same = buffer.torch(torch.float32, (4, 16), strides=(1 << 35, 1), offset=1 << 18)
    assert same[3, 5] == 2.5
    with pytest.raises(ValueError, match="do not fit"):
        buffer.write(b"12", (1 << 40) - 1)

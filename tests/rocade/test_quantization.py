"""packbits and segment_packbits against numpy, and their refusals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from rocade import _bits
from rocade.quantization import packbits, segment_packbits

ORDERS = ["big", "little"]


@pytest.mark.parametrize("bitorder", ORDERS)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1001])
def test_packbits_equals_numpy(size: int, bitorder: str) -> None:
    x = torch.rand(size) < 0.5
    expected = np.packbits(x.numpy(), bitorder=bitorder)
    assert np.array_equal(packbits(x, bitorder).numpy(), expected)


def test_each_bit_of_each_byte_lands_where_it_should() -> None:
    x = torch.eye(8, dtype=torch.bool).flatten()
    assert packbits(x).tolist() == [128 >> i for i in range(8)]  # FlashInfer's default is big
    assert packbits(x, bitorder="little").tolist() == [1 << i for i in range(8)]
    assert packbits(~x, bitorder="little").tolist() == [255 ^ 1 << i for i in range(8)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_any_nonzero_is_one(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 2, 128, 0, 7], dtype=dtype)
    assert packbits(x, "little").tolist() == [0b10110]


def test_strided_input() -> None:
    x = torch.rand(40) < 0.5
    assert torch.equal(packbits(x[::3]), packbits(x[::3].clone()))


@pytest.mark.parametrize("spread", [_bits._copy_segments, _bits._scatter_segments])
@pytest.mark.parametrize("bitorder", ORDERS)
@pytest.mark.parametrize("lengths", [[], [0], [5, 0, 8, 16, 1, 0, 0], [0, 3], [7] * 20])
@pytest.mark.parametrize("start", [0, 3])
def test_segments_start_on_their_own_byte(
    lengths: list[int],
    bitorder: str,
    start: int,
    spread: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_bits, "_copy_segments", spread)
    indptr = torch.tensor([start, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    x = torch.rand(int(indptr[-1]) + 2) < 0.5  # longer than the segments need
    packed, byte_indptr = segment_packbits(x, indptr, bitorder)
    assert byte_indptr.dtype == torch.int32
    assert byte_indptr.tolist() == np.cumsum([0, *[(n + 7) // 8 for n in lengths]]).tolist()
    assert packed.numel() == byte_indptr[-1]
    for i in range(len(lengths)):
        segment = x[indptr[i] : indptr[i + 1]].numpy()
        expected = np.packbits(segment, bitorder=bitorder)
        assert np.array_equal(packed[byte_indptr[i] : byte_indptr[i + 1]].numpy(), expected)


def test_int64_indptr_stays_int64() -> None:
    _, byte_indptr = segment_packbits(torch.ones(9, dtype=torch.bool), torch.tensor([0, 9]))
    assert byte_indptr.dtype == torch.int64
    assert byte_indptr.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("indptr", "match"),
    [
        (torch.tensor([0, 4, 3]), "indptr"),
        (torch.tensor([0, 11]), "indptr"),
        (torch.tensor([-1, 4]), "indptr"),
        (torch.tensor([0.0, 4.0]), "indptr"),
        (torch.tensor([], dtype=torch.int32), "indptr"),
        (torch.tensor([[0, 4]]), "indptr"),
    ],
)
def test_bad_indptr_is_refused(indptr: torch.Tensor, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        segment_packbits(torch.ones(10, dtype=torch.bool), indptr)


def test_bad_order_and_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="bitorder"):
        packbits(torch.ones(8), "middle")
    with pytest.raises(ValueError, match="bitorder"):
        segment_packbits(torch.ones(8), torch.tensor([0, 8]), "middle")
    with pytest.raises(ValueError, match="one-dimensional"):
        packbits(torch.ones(2, 8))

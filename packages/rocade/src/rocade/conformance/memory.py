"""Tensors laid out the hard ways a caller may pass them, with poison in every byte that must not be read.

Letters: N pages, S page size, n dense rows, H heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from arch_caps import DType, Layout

TORCH_DTYPES = {
    DType.FP32: torch.float32,
    DType.FP16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.FP8_E4M3: torch.float8_e4m3fn,
    DType.FP8_E5M2: torch.float8_e5m2,
    DType.FP8_E4M3_FNUZ: torch.float8_e4m3fnuz,
    DType.FP8_E5M2_FNUZ: torch.float8_e5m2fnuz,
}
PAD = 8  # elements beside each row of padded storage


class Placed(NamedTuple):
    """A tensor as the caller passes it, and an NHD view of the same memory."""

    given: torch.Tensor
    nhd: torch.Tensor


def poison_value(kind: str, dtype: DType) -> float:
    """NaN, or a number so large that one leaked value is seen in any sum."""
    if kind == "nan":
        return float("nan")
    return {DType.FP16: 6e4}.get(dtype, 200.0 if dtype.is_fp8 else 1e30)


def full(shape: Sequence[int], value: float, dtype: DType, device: torch.device) -> torch.Tensor:
    """`torch.full` for every storage type; fp8 tensors cannot be filled directly."""
    one = torch.tensor(value, dtype=torch.float32).to(TORCH_DTYPES[dtype])
    return one.to(device).expand(tuple(shape)).clone(memory_format=torch.contiguous_format)


def place(
    outer: Sequence[int], tokens: int, heads: int, dim: int, layout: Layout, storage: str, fill: torch.Tensor
) -> Placed:
    """Memory for `[*outer, tokens, heads, dim]` (NHD) filled with `fill`, a 0-d tensor of the wanted dtype.

    `permuted` storage has the other layout's order in memory; `padded` storage has room between rows and, for
    paged caches, between pages, which is how a cache looks that is a slice of a larger one.
    """
    nhd_memory = (layout is Layout.NHD) != (storage == "permuted")
    inner = (tokens, heads) if nhd_memory else (heads, tokens)
    padded = storage == "padded"
    first = (2 * outer[0], *outer[1:]) if padded and outer else tuple(outer)
    base = fill.expand((*first, *inner, dim + (PAD if padded else 0))).clone(
        memory_format=torch.contiguous_format
    )
    view = base[..., PAD // 2 : PAD // 2 + dim] if padded else base
    view = view[::2] if padded and outer else view
    nhd = view if nhd_memory else view.transpose(-3, -2)
    return Placed(nhd if layout is Layout.NHD else nhd.transpose(-3, -2), nhd)


def values(shape: Sequence[int], dtype: DType, scale: float, generator: torch.Generator) -> torch.Tensor:
    """Normal random numbers rounded to `dtype`, on the CPU."""
    return (torch.randn(tuple(shape), generator=generator) * scale).to(TORCH_DTYPES[dtype])


def int_array(numbers: Sequence[int], strided: bool, device: torch.device) -> torch.Tensor:
    """An int32 plan array; strided ones lie between numbers that would be an error if they were read."""
    plain = torch.tensor(list(numbers), dtype=torch.int32, device=device)
    if not strided:
        return plain
    base = torch.full((2 * len(numbers),), -(2**31), dtype=torch.int32, device=device)
    base[::2] = plain
    return base[::2]


def raw_bytes(x: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor as one run of bytes; equal bytes are equal bits, NaN included."""
    # clone: a one-element view counts as contiguous with any stride, and could not be viewed as bytes
    return x.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8)

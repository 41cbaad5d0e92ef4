"""What AITER's kernels can read and write in place: addresses and strides that are multiples of 16 bytes."""

from __future__ import annotations

import functools
import logging

import torch

from rocade._plan import KV

log = logging.getLogger("rocade")

ALIGN = 16  # bytes


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether every row starts at a multiple of `ALIGN`; the last dimension is contiguous."""
    mixed = tensor.data_ptr()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size > 1 and stride != 1:
            mixed |= stride * tensor.itemsize
    return mixed % ALIGN == 0


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it that kernels can read."""
    return tensor if is_readable(tensor) else tensor.clone(memory_format=torch.contiguous_format)


def readable_keys(kv: KV) -> KV:
    """K and V, or copies, which are of all of them at every run and therefore told of."""
    if is_readable(kv.k) and is_readable(kv.v):
        return kv
    _warn_of_copies()
    return KV(readable(kv.k), readable(kv.v))


def writable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or memory of its shape that kernels can write; then it is to be copied back."""
    if is_readable(tensor):
        return tensor
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


@functools.cache
def _warn_of_copies() -> None:
    log.warning("AITER: K or V has strides that are no multiples of %d bytes, so every run copies it", ALIGN)

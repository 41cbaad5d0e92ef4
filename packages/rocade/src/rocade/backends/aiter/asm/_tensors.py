"""Tensors as AITER's kernels can reach them: aligned, and with rows that do not overlap.

A kernel takes the bytes of a request to be its rows times the row stride, and reads or writes nothing beyond.
So a row stride below a row's size, as `expand` makes it, would cut rows off.
"""

from __future__ import annotations

import torch

from rocade._plan import KV
from rocade.backends.aiter._readable import readable, readable_keys, writable


def rows_to_read(tensor: torch.Tensor) -> torch.Tensor:
    """`[rows, heads, D]`, or a copy of it."""
    return readable(tensor) if _is_spread(tensor) else tensor.contiguous()


def keys_to_read(kv: KV) -> KV:
    """K and V, or copies of them."""
    k, v = readable_keys(kv)
    return KV(k if _is_spread(k) else k.contiguous(), v if _is_spread(v) else v.contiguous())


def rows_to_write(tensor: torch.Tensor) -> torch.Tensor:
    """`[rows, heads, D]`, or memory of this shape to copy from."""
    return writable(tensor) if _is_spread(tensor) else torch.empty_like(tensor).contiguous()


def _is_spread(tensor: torch.Tensor) -> bool:
    """Whether rows are apart by their own size at least; one row may have any stride, which is used, too."""
    row, _, _ = tensor.stride()
    return row >= tensor.shape[2] and tensor.shape[2] > 0

"""Bit packing of boolean masks, with FlashInfer's names and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rocade import _bits, _refused
from rocade._errors import invalid

if not TYPE_CHECKING:
    __getattr__ = _refused.attributes(__name__)

__all__ = ["packbits", "segment_packbits"]


def packbits(x: torch.Tensor, bitorder: str = "big") -> torch.Tensor:
    """Pack booleans into bytes like `numpy.packbits`.

    Attention masks need `bitorder="little"`; the default is FlashInfer's.

    Args:
        x: `[n]`, any dtype, zero is 0 and anything else is 1.
        bitorder: `"big"` puts the first element in a byte's highest bit, `"little"` in its lowest.

    Returns:
        uint8 `[ceil(n / 8)]` on the device of `x`; missing bits of the last byte are 0.

    Raises:
        ValueError: `x` is not one-dimensional, or `bitorder` is another string.
    """
    _check_flat(x, bitorder)
    return _bits.pack(x.contiguous(), bitorder)


def segment_packbits(
    x: torch.Tensor, indptr: torch.Tensor, bitorder: str = "big"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack each segment of `x` separately, so that every segment starts on a byte of its own.

    Reads `indptr` on the host, which waits for its device.

    Args:
        x: `[n]`, any dtype, zero is 0 and anything else is 1.
        indptr: int32 or int64 `[B + 1]`; segment i is `x[indptr[i]:indptr[i + 1]]` and may be empty.
        bitorder: as in `packbits`.

    Returns:
        The packed uint8 `[m]`, and the first byte of each segment: `[B + 1]`, dtype and device of `indptr`.

    Raises:
        ValueError: `indptr` decreases, leaves `x`, or has another shape or dtype; or as in `packbits`.
    """
    _check_flat(x, bitorder)
    if indptr.dim() != 1 or indptr.numel() == 0 or indptr.dtype not in (torch.int32, torch.int64):
        raise invalid("indptr", f"{indptr.dtype} {list(indptr.shape)}", "int32 or int64 [B + 1]")
    bounds = indptr.to("cpu")
    if bool((bounds.diff() < 0).any()) or int(bounds[0]) < 0 or int(bounds[-1]) > x.numel():
        raise invalid("indptr", bounds.tolist(), f"no decrease, and 0 to {x.numel()}, the elements of x")
    packed, byte_indptr = _bits.pack_segments(x.contiguous(), bounds, bitorder)
    return packed, byte_indptr.to(indptr.device, indptr.dtype)


def _check_flat(x: torch.Tensor, bitorder: str) -> None:
    """Raise ValueError for a tensor that is not one-dimensional or a bit order that does not exist."""
    if x.dim() != 1:
        raise invalid("x", f"shape {list(x.shape)}", "a one-dimensional tensor")
    _bits.check_bitorder(bitorder)

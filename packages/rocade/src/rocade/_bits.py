"""Packs booleans into bytes: the one implementation behind `packbits`, `segment_packbits` and custom masks.

Eight 0/1 bytes are read as one 64-bit word; a multiplication gathers their low bits in its top byte. The word
is read in the host's byte order, which is little-endian on every machine rocade runs on.
"""

from __future__ import annotations

import torch

from rocade._errors import invalid

# Byte i of the word has to reach bit 56 + i (little) or bit 63 - i (big); no two products meet below 2^64.
_GATHER = {
    "little": sum(1 << (56 - 7 * i) for i in range(8)),
    "big": sum(1 << (63 - 9 * i) for i in range(8)),
}


def check_bitorder(bitorder: str) -> None:
    """Raise ValueError for anything but "big" and "little"."""
    if bitorder not in _GATHER:
        raise invalid("bitorder", repr(bitorder), "'big' or 'little'")


def pack(x: torch.Tensor, bitorder: str) -> torch.Tensor:
    """Pack `x [n]` (nonzero is 1) into uint8 `[ceil(n / 8)]`; the last byte is filled with zeros."""
    size = x.numel()
    padded = x.new_zeros((size + 7) // 8 * 8, dtype=torch.uint8)
    padded[:size] = _as_bits(x)
    return _gather(padded, bitorder)


def pack_segments(x: torch.Tensor, indptr: torch.Tensor, bitorder: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack each segment `x[indptr[i]:indptr[i + 1]]` on bytes of its own.

    `indptr [B + 1]` must be checked and start at or above 0. Returns the bytes and their int64 host indptr.
    """
    bounds = indptr.to("cpu", torch.int64)
    num_bytes = (bounds.diff() + 7) // 8
    byte_indptr = torch.zeros_like(bounds)
    torch.cumsum(num_bytes, 0, out=byte_indptr[1:])
    padded = x.new_zeros(int(byte_indptr[-1]) * 8, dtype=torch.uint8)
    spread = _copy_segments if x.device.type == "cpu" else _scatter_segments
    spread(_as_bits(x), bounds, byte_indptr * 8, padded)
    return _gather(padded, bitorder), byte_indptr


def _as_bits(x: torch.Tensor) -> torch.Tensor:
    """uint8 0/1 of any tensor; a bool tensor is viewed, not copied."""
    return x.view(torch.uint8) if x.dtype is torch.bool else (x != 0).view(torch.uint8)


def _gather(padded: torch.Tensor, bitorder: str) -> torch.Tensor:
    """uint8 `[n / 8]` of 0/1 bytes `[n]`, n a multiple of 8."""
    factor = _GATHER[bitorder]
    words = padded.view(torch.int64) * (factor - (1 << 64) if factor >> 63 else factor)
    return ((words >> 56) & 0xFF).to(torch.uint8)


def _copy_segments(
    bits: torch.Tensor, begin: torch.Tensor, target: torch.Tensor, padded: torch.Tensor
) -> None:
    """One copy a segment: the fast way on a CPU, where masks are long and a copy costs no launch."""
    ends = begin.tolist()
    for i, to in enumerate(target.tolist()[:-1]):
        size = ends[i + 1] - ends[i]
        if size:
            padded[to : to + size] = bits[ends[i] : ends[i + 1]]


def _scatter_segments(
    bits: torch.Tensor, begin: torch.Tensor, target: torch.Tensor, padded: torch.Tensor
) -> None:
    """One scatter for all segments: the fast way on a device, where every copy is a launch."""
    shift = torch.repeat_interleave(target[:-1] - begin[:-1], begin.diff()).to(bits.device)
    first, last = int(begin[0]), int(begin[-1])
    padded[torch.arange(first, last, device=bits.device) + shift] = bits[first:last]

"""The one place in Python that knows which key a query sees, and how custom masks are packed.

Positions are global: a request's last query sits on its last key (bottom-right), whatever level a key is in.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from arch_caps import MaskKind
from rocade import _bits
from rocade._errors import invalid
from rocade._upload import upload


@dataclass(frozen=True, slots=True)
class PackedMask:
    """A custom mask: bit b of byte k is element 8k + b of a request's row-major `[qo_len, kv_len]` block."""

    bits: torch.Tensor  # uint8
    indptr: torch.Tensor  # int64 [B + 1], host: first byte of each request

    def lookup(self, first_byte: torch.Tensor, element: torch.Tensor) -> torch.Tensor:
        """Bool per `element`, int64 flat index in a request's block that starts at `first_byte`.

        Both are on the device of `bits` and broadcast. The caller keeps elements inside the block.
        """
        byte = first_byte + (element >> 3)
        return (self.bits[byte] >> (element & 7).to(torch.uint8)) & 1 != 0


@dataclass(frozen=True, slots=True)
class Visibility:
    """Mask kind and window of one plan. Query row i of a request stands at position `i + kv_len - qo_len`."""

    kind: MaskKind
    window_left: int  # -1 means no limit; the window has no right bound by itself

    def key_range(self, first: int, last: int, kv_len: int) -> tuple[int, int]:
        """Half-open range of keys that rows at positions `first..last` (inclusive) may see at all."""
        begin = max(first - self.window_left, 0) if self.window_left >= 0 else 0
        end = min(last + 1, kv_len) if self.kind is MaskKind.CAUSAL else kv_len
        return min(begin, kv_len), max(end, 0)

    def key_ranges(
        self, first: torch.Tensor, last: torch.Tensor, kv_len: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`key_range` of many row tiles at once: int64 tensors in and out, elementwise."""
        begin = (first - self.window_left).clamp_min(0) if self.window_left >= 0 else torch.zeros_like(first)
        end = torch.minimum(last + 1, kv_len) if self.kind is MaskKind.CAUSAL else kv_len
        return torch.minimum(begin, kv_len), end.clamp_min(0)

    def hides_none(self, first: int, last: int, key_first: int, key_last: int) -> bool:
        """True when rows at positions `first..last` all see all keys at `key_first..key_last` (inclusive)."""
        if self.kind is MaskKind.CUSTOM or (self.kind is MaskKind.CAUSAL and key_last > first):
            return False
        return self.window_left < 0 or key_first >= last - self.window_left

    def visible(self, query_pos: torch.Tensor, key_pos: torch.Tensor) -> torch.Tensor | None:
        """Bool `[..., rows, keys]` for causal and window, or None when neither hides anything by rule.

        `query_pos [..., rows]` and `key_pos [..., keys]` have the same leading dimensions, if any.
        """
        seen: torch.Tensor | None = None
        if self.kind is MaskKind.CAUSAL:
            seen = key_pos[..., None, :] <= query_pos[..., :, None]
        if self.window_left >= 0:
            near = key_pos[..., None, :] >= query_pos[..., :, None] - self.window_left
            seen = near if seen is None else seen & near
        return seen


def pack(mask: torch.Tensor, qo_len: torch.Tensor, kv_len: torch.Tensor, device: torch.device) -> PackedMask:
    """Pack a flat mask: row-major `[qo_len[i], kv_len[i]]` blocks one after another; nonzero means visible.

    Raises ValueError when it is no 1-D bool or uint8 tensor of exactly that many elements.
    """
    _check_flat("custom_mask", mask, (torch.bool, torch.uint8))
    cells = _cells(qo_len, kv_len)
    if mask.numel() != int(cells[-1]):
        raise invalid(
            "custom_mask", f"{mask.numel()} elements", f"{int(cells[-1])}, the sum of qo_len * kv_len"
        )
    bits, indptr = _bits.pack_segments(mask.contiguous(), cells, "little")
    return PackedMask(upload(bits, device), indptr)


def adopt(bits: torch.Tensor, qo_len: torch.Tensor, kv_len: torch.Tensor, device: torch.device) -> PackedMask:
    """A mask that the caller packed: little-endian bits, each request on bytes of its own.

    Raises ValueError when it is no 1-D uint8 tensor of exactly that many bytes.
    """
    _check_flat("packed_custom_mask", bits, (torch.uint8,))
    indptr = torch.zeros(qo_len.numel() + 1, dtype=torch.int64, device="cpu")
    torch.cumsum((_cells(qo_len, kv_len).diff() + 7) // 8, 0, out=indptr[1:])
    if bits.numel() != int(indptr[-1]):
        expected = f"{int(indptr[-1])}, the sum of ceil(qo_len * kv_len / 8)"
        raise invalid("packed_custom_mask", f"{bits.numel()} bytes", expected)
    return PackedMask(upload(bits.contiguous(), device), indptr)


def _cells(qo_len: torch.Tensor, kv_len: torch.Tensor) -> torch.Tensor:
    """int64 `[B + 1]`: first element of each request's block in the flat mask."""
    indptr = torch.zeros(qo_len.numel() + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(qo_len.to(torch.int64) * kv_len, 0, out=indptr[1:])
    return indptr


def _check_flat(name: str, mask: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    if not isinstance(mask, torch.Tensor):
        raise invalid(name, type(mask).__name__, "a 1-D tensor")
    if mask.dim() != 1:
        raise invalid(
            name, f"shape {list(mask.shape)}", "a 1-D tensor: the requests' blocks one after another"
        )
    if mask.dtype not in dtypes:
        raise invalid(name, mask.dtype, " or ".join(map(str, dtypes)))

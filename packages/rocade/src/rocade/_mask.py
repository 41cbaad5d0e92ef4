"""The one place in Python that knows which key a query sees, and how custom masks are packed.

Positions are global: a request's last query sits on its last key (bottom-right), whatever level a key is in.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from arch_caps import MaskKind


@dataclass(frozen=True, slots=True)
class PackedMask:
    """A custom mask: bit b of byte k is flat element 8k + b of a request's row-major `[qo_len, kv_len]` block."""

    bits: torch.Tensor  # uint8
    indptr: torch.Tensor  # int64 [B + 1], host: first byte of each request


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

    def visible(self, query_pos: torch.Tensor, key_pos: torch.Tensor) -> torch.Tensor | None:
        """Bool `[rows, keys]` for causal and window, or None when neither hides anything by rule."""
        seen: torch.Tensor | None = None
        if self.kind is MaskKind.CAUSAL:
            seen = key_pos[None, :] <= query_pos[:, None]
        if self.window_left >= 0:
            near = key_pos[None, :] >= query_pos[:, None] - self.window_left
            seen = near if seen is None else seen & near
        return seen

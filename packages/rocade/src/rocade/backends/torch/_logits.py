"""From queries and keys to masked logits in the log2 domain: scale, ALiBi, soft cap, visibility.

Letters: b tiles, m query rows of a tile, n keys, H KV heads, G query heads per KV head, D head dim.
"""

from __future__ import annotations

import math

import torch

from arch_caps import MaskKind, PosEncoding, Request
from rocade._mask import PackedMask, Visibility
from rocade.backends.torch._gather import Chunk
from rocade.backends.torch._softmax import NO_KEYS
from rocade.backends.torch._tiles import Batch

_LOG2_E = math.log2(math.e)


class Logits:
    """The rules of one plan, applied to one chunk of keys at a time."""

    def __init__(
        self, request: Request, visibility: Visibility, mask: PackedMask | None, device: torch.device
    ) -> None:
        self._visibility, self._mask = visibility, mask
        self._cap = request.logits_soft_cap
        self._slopes: torch.Tensor | None = None
        if request.pos_encoding is PosEncoding.ALIBI:
            self._slopes = alibi_slopes(request.num_qo_heads, device).view(request.num_kv_heads, -1, 1, 1)

    @property
    def factor(self) -> float:
        """What q is multiplied with besides the scale, so that products suit `finish`."""
        return 1.0 / self._cap if self._cap > 0 else _LOG2_E

    def finish(
        self, raw: torch.Tensor, batch: Batch, chunk: Chunk, row_pos: torch.Tensor
    ) -> torch.Tensor | None:
        """Turn products `raw [b, H, G, m, n]` into logits, in place; `row_pos [b, m]` is global.

        Returns bool `[b, n]`, the keys that some row sees, or None when every row sees every key.
        """
        if self._slopes is not None:
            key_pos = chunk.key + batch.tiles.offset[:, None]
            distance = (key_pos[:, None, :] - row_pos[:, :, None]).float()
            raw.addcmul_(self._slopes, distance[:, None, None], value=self.factor)
        if self._cap > 0:
            raw.tanh_().mul_(self._cap * _LOG2_E)
        seen = self._seen(batch, chunk, row_pos)
        if seen is None:
            return None
        raw.masked_fill_(~seen[:, None, None], NO_KEYS)
        return seen.any(1)

    def _seen(self, batch: Batch, chunk: Chunk, row_pos: torch.Tensor) -> torch.Tensor | None:
        """Bool `[b, m, n]` (m may be 1 for all rows), or None."""
        seen = None if chunk.real is None else chunk.real[:, None, :]
        if not self._all_see_all(batch, chunk):
            key_pos = chunk.key + batch.tiles.offset[:, None]
            near = self._visibility.visible(row_pos, key_pos)
            seen = near if seen is None else seen if near is None else seen & near
        if self._visibility.kind is MaskKind.CUSTOM:
            allowed = self._allowed(batch, chunk, row_pos.shape[1])
            seen = allowed if seen is None else seen & allowed
        return seen

    def _all_see_all(self, batch: Batch, chunk: Chunk) -> bool:
        """Whether causal and window hide nothing of this chunk; asked of the host's copy of the plan."""
        if self._visibility.kind is not MaskKind.CAUSAL and self._visibility.window_left < 0:
            return True
        if batch.size > 1:
            return False
        first = chunk.first + int(batch.host.offset)
        bounds = int(batch.host.pos_first), int(batch.host.pos_last)
        return self._visibility.hides_none(*bounds, first, first + chunk.key.shape[1] - 1)

    def _allowed(self, batch: Batch, chunk: Chunk, rows: int) -> torch.Tensor:
        """Bool `[b, m, n]` of the custom mask. Padding asks for the last row or key instead."""
        assert self._mask is not None
        tiles = batch.tiles
        nth = torch.arange(rows, device=chunk.key.device)
        row = tiles.mask_row[:, None] + torch.minimum(nth, tiles.rows[:, None] - 1)
        key = torch.minimum(chunk.key, tiles.key_last[:, None] - 1)
        element = row[:, :, None] * tiles.kv_len[:, None, None] + key[:, None, :]
        return self._mask.lookup(tiles.mask_byte[:, None, None], element)


def alibi_slopes(heads: int, device: torch.device) -> torch.Tensor:
    """fp32 `[heads]`: a geometric series for the largest power of two in `heads`, then in-between values."""
    base = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (h + 1) / base) for h in range(base)]
    slopes += [2.0 ** (-4.0 * (2 * h + 1) / base) for h in range(heads - base)]
    return torch.tensor(slopes, dtype=torch.float32, device=device)

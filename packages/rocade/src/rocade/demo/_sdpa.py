"""The comparison: attention as a user of plain PyTorch writes it. One contiguous cache a request, no sharing.

Letters: T new token rows, B requests, L longest request, Hq and Hkv heads, D head dim.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from rocade.demo._attention import Attention, Rows
from rocade.demo._cache import ContiguousCache
from rocade.demo._gguf import ModelConfig


class SdpaAttention(Attention):
    """`scaled_dot_product_attention`: a mask over padded caches in decode, request by request in prefill.

    The prompt runs through the model once, as request 0, and its keys and values are copied to every request:
    computing them again for each would give the same numbers.
    """

    name = "PyTorch SDPA, no sharing"

    def __init__(self, config: ModelConfig, *, batch: int, capacity: int, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.cache = ContiguousCache(config, batch=batch, capacity=capacity, dtype=dtype)
        self._lengths = [0] * batch

    def kv_bytes(self, sequences: list[int]) -> int:
        """Bytes of all requests' buffers; they were made as long as the longest answer can get."""
        return self.cache.nbytes

    def start(self) -> int:
        """Request 0."""
        return 0

    def fork(self, prompt: int, count: int) -> list[int]:
        """All requests, each with its own copy of the prompt's keys and values."""
        self.cache.copy_first_to_all(self._lengths[prompt])
        self._lengths = [self._lengths[prompt]] * count
        return list(range(count))

    def _extend(self, rows: Rows) -> torch.Tensor:
        for request, count in zip(rows.sequences, rows.counts, strict=True):
            self._lengths[request] += count
        self._request = torch.tensor(rows.sequences)[rows.owners()]
        self._position = rows.positions([self._lengths[r] for r in rows.sequences])
        return self._position

    def _plan(self, rows: Rows) -> None:
        """Bool mask `[T, L]` of the keys that each row sees."""
        self._rows = rows
        self._longest = max(self._lengths[r] for r in rows.sequences)
        self._mask = torch.arange(self._longest) <= self._position[:, None]

    def _append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        self.cache.append(layer, k, v, self._request, self._position)

    def _attend(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        k = self.cache.k[layer][:, :, : self._longest]
        v = self.cache.v[layer][:, :, : self._longest]
        if self._rows.sequences == list(range(len(k))) and set(self._rows.counts) == {1}:
            mask = self._mask[:, None, None]  # [B, 1, 1, L]
            return scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=mask, enable_gqa=True)[:, :, 0]
        return torch.cat([self._attend_one(*part, k, v) for part in self._split(q)])

    def _split(self, q: torch.Tensor) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
        """(request, its rows of q, its rows of the mask)."""
        counts = self._rows.counts
        parts = zip(torch.split(q, counts), torch.split(self._mask, counts), strict=True)
        return [(r, *part) for r, part in zip(self._rows.sequences, parts, strict=True)]

    def _attend_one(
        self, request: int, q: torch.Tensor, mask: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        length = self._lengths[request]
        out = scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k[request : request + 1, :, :length],
            v[request : request + 1, :, :length],
            attn_mask=mask[:, :length],
            enable_gqa=True,
        )
        return out[0].transpose(0, 1)

"""Paged decode in plain PyTorch, as well as PyTorch can do it on a CPU: the rivals of `rocade bench cpu`.

Three formulations, each handed equal lengths (so that none needs a mask, which favours them):

- `gather + SDPA`: what a user writes first.
- `tiles + bmm`: gather about 2048 tokens at a time into a reused buffer, two batched products in fp32 with
  the group's query heads as rows, and an online softmax over tiles.
- `tiles + flash`: the same tiles through the fused CPU op, combined by their log-sum-exp.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from rocade.bench._workload import PagedBatch, Table

TILE_TOKENS = 2048


class TorchDecode:
    """Decode of one `PagedBatch` by PyTorch operators alone. Every method returns out `[B, H, D]`."""

    def __init__(self, batch: PagedBatch) -> None:
        self._batch = batch
        heads, count = batch.heads, batch.q.shape[0]
        self._scale = heads.dim**-0.5
        self._pages = -(-batch.kv_len // batch.page_size)
        self._requests = max(1, TILE_TOKENS // (self._pages * batch.page_size))  # requests in one tile
        self._tile_pages = min(self._pages, max(1, TILE_TOKENS // batch.page_size))
        shape = (self._requests * self._tile_pages, 2, *batch.cache.shape[2:])
        self._buffer = torch.empty(shape, dtype=batch.cache.dtype)
        self._buffer32 = torch.empty(shape) if batch.cache.dtype != torch.float32 else self._buffer
        self._rows = batch.q.view(count, heads.kv, heads.qo // heads.kv, heads.dim)
        self._rows32 = self._rows.float()

    def calls(self) -> dict[str, Callable[[int], torch.Tensor]]:
        """The formulations by name, each taking a turn number that picks the page table."""
        found: dict[str, Callable[[Table], torch.Tensor]] = {
            "torch gather + SDPA": self.gather_sdpa,
            "torch tiles + bmm": self.tiles_bmm,
            "torch tiles + flash": self.tiles_flash,
        }
        if self._batch.cache.dtype == torch.bfloat16:
            found["torch tiles + flash (bf16)"] = self.tiles_flash_native
        return {name: self._by_turn(call) for name, call in found.items()}

    def _by_turn(self, call: Callable[[Table], torch.Tensor]) -> Callable[[int], torch.Tensor]:
        """`call` on the table of a turn, so that each turn reads other pages."""
        tables = self._batch.tables
        return lambda turn: call(tables[turn % len(tables)])

    def gather_sdpa(self, table: Table) -> torch.Tensor:
        """Index the pool with the whole table, then one call of scaled_dot_product_attention."""
        batch = self._batch
        count, heads = batch.q.shape[0], batch.heads
        kv = batch.cache[table.indices]
        kv = kv.view(count, self._pages, 2, batch.page_size, heads.kv, heads.dim)
        k, v = (
            kv[:, :, i].reshape(count, -1, heads.kv, heads.dim)[:, : batch.kv_len].transpose(1, 2)
            for i in (0, 1)
        )
        out = torch.nn.functional.scaled_dot_product_attention(batch.q[:, :, None], k, v, enable_gqa=True)
        return out[:, :, 0]

    def tiles_bmm(self, table: Table) -> torch.Tensor:
        """Two fp32 batched products a tile."""
        return self._over_tiles(table, self._bmm_tile, cast=True)

    def tiles_flash(self, table: Table) -> torch.Tensor:
        """The fused op on fp32 tiles."""
        return self._over_tiles(table, self._flash_tile, cast=True)

    def tiles_flash_native(self, table: Table) -> torch.Tensor:
        """The fused op on tiles in the cache's own dtype."""
        return self._over_tiles(table, self._flash_tile, cast=False)

    def _over_tiles(
        self,
        table: Table,
        tile: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
        *,
        cast: bool,
    ) -> torch.Tensor:
        batch, heads = self._batch, self._batch.heads
        rows = self._rows32 if cast else self._rows
        out = torch.empty(rows.shape, dtype=rows.dtype)
        for first in range(0, rows.shape[0], self._requests):
            q = rows[first : first + self._requests]
            state: tuple[torch.Tensor, torch.Tensor] | None = None
            for page in range(0, self._pages, self._tile_pages):
                stop = min(page + self._tile_pages, self._pages)
                kv = self._gather(table, first, q.shape[0], page, stop, cast=cast)
                kv = kv.view(q.shape[0], stop - page, 2, batch.page_size, heads.kv, heads.dim)
                tokens = min(stop * batch.page_size, batch.kv_len) - page * batch.page_size
                k, v = (kv[:, :, i].flatten(1, 2)[:, :tokens].transpose(1, 2) for i in (0, 1))
                new = tile(q, k, v)
                state = new if state is None else _combine(state, new)
            assert state is not None
            out[first : first + self._requests] = state[0]
        return out.view(batch.q.shape).to(batch.q.dtype)

    def _gather(
        self, table: Table, first: int, count: int, page: int, stop: int, *, cast: bool
    ) -> torch.Tensor:
        ids = table.indices.view(-1, self._pages)[first : first + count, page:stop].reshape(-1)
        buffer = self._buffer[: ids.numel()]
        torch.index_select(self._batch.cache, 0, ids, out=buffer)
        if not cast or buffer.dtype == torch.float32:
            return buffer
        return self._buffer32[: ids.numel()].copy_(buffer)

    def _bmm_tile(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = torch.matmul(q * self._scale, k.transpose(-1, -2))
        lse = torch.logsumexp(logits, -1)
        return torch.matmul(torch.exp(logits - lse[..., None]), v), lse

    def _flash_tile(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, scale=self._scale)
        return out, lse


def _combine(
    a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge two natural-log states."""
    lse = torch.logaddexp(a[1], b[1])
    weights = [(s - lse).exp()[..., None].to(a[0].dtype) for s in (a[1], b[1])]
    return a[0] * weights[0] + b[0] * weights[1], lse

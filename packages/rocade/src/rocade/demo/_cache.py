"""Where keys and values live: one paged pool with shared pages, and the contiguous cache of a plain program.

Letters: N pages, S tokens a page, B requests, L tokens of capacity, Hkv heads, D head dim.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from rocade.demo._gguf import ModelConfig


class PageArrays(NamedTuple):
    """FlashInfer's page table of some sequences, int32 on the CPU."""

    indptr: torch.Tensor  # [B + 1]
    indices: torch.Tensor  # [indptr[-1]]
    last_page_len: torch.Tensor  # [B]


class PagedCache:
    """A pool of pages for every layer. Sequences only grow; a fork shares its parent's pages."""

    def __init__(self, config: ModelConfig, *, num_pages: int, page_size: int, dtype: torch.dtype) -> None:
        shape = (num_pages, 2, page_size, config.num_kv_heads, config.head_dim)
        self.layers = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]  # [N, 2, S, Hkv, D]
        self.page_size = page_size
        self._pages: list[list[int]] = []  # by sequence
        self._lengths: list[int] = []
        self._free = list(range(num_pages - 1, -1, -1))

    def fork(self, parent: int | None = None) -> int:
        """A new sequence, empty or with the tokens of `parent`, which must fill its last page."""
        length = 0 if parent is None else self._lengths[parent]
        if length % self.page_size:
            raise ValueError("only whole pages can be shared: the parent's last page is not full")
        self._lengths.append(length)
        self._pages.append([] if parent is None else list(self._pages[parent]))
        return len(self._pages) - 1

    def extend(self, sequence: int, count: int) -> None:
        """Make room for `count` more tokens; MemoryError, and no change, when the pool has none."""
        length = self._lengths[sequence] + count
        needed = -(-length // self.page_size) - len(self._pages[sequence])
        if needed > len(self._free):
            raise MemoryError(f"the pool has {len(self._free)} free pages, {needed} are needed")
        self._lengths[sequence] = length
        self._pages[sequence] += [self._free.pop() for _ in range(needed)]

    def length(self, sequence: int) -> int:
        """Tokens of a sequence."""
        return self._lengths[sequence]

    def arrays(self, sequences: list[int]) -> PageArrays:
        """The page table of `sequences`, in that order."""
        counts = torch.tensor([0] + [len(self._pages[s]) for s in sequences])
        lengths = torch.tensor([self._lengths[s] for s in sequences])
        return PageArrays(
            counts.cumsum(0).int(),
            torch.tensor([page for s in sequences for page in self._pages[s]], dtype=torch.int32),
            ((lengths - 1) % self.page_size + 1).int(),
        )

    def bytes_held(self, sequences: list[int]) -> int:
        """Bytes of the pages of `sequences` over all layers, a page that several hold once."""
        pages = {page for s in sequences for page in self._pages[s]}
        return len(pages) * sum(layer[0].nbytes for layer in self.layers)


class ContiguousCache:
    """K and V as `[B, Hkv, L, D]` a layer, every request with its own copy of everything."""

    def __init__(self, config: ModelConfig, *, batch: int, capacity: int, dtype: torch.dtype) -> None:
        shape = (batch, config.num_kv_heads, capacity, config.head_dim)
        self.k = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]
        self.v = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]

    def append(
        self, layer: int, k: torch.Tensor, v: torch.Tensor, request: torch.Tensor, position: torch.Tensor
    ) -> None:
        """Write rows `k, v [T, Hkv, D]` of requests `request [T]` at `position [T]`."""
        self.k[layer][request, :, position] = k
        self.v[layer][request, :, position] = v

    def copy_first_to_all(self, length: int) -> None:
        """Give every request the first `length` tokens of request 0."""
        for cache in (*self.k, *self.v):
            cache[1:, :, :length] = cache[:1, :, :length]

    @property
    def nbytes(self) -> int:
        """Bytes over all layers, unused capacity included."""
        return sum(cache.nbytes for cache in (*self.k, *self.v))

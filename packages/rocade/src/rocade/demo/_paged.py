"""rocade's attention over a paged cache whose requests share the prompt's pages: with cascade, and without.

Letters: T new token rows, B requests, Hq and Hkv heads, D head dim.
"""

from __future__ import annotations

from abc import abstractmethod

import torch

import rocade
from rocade.demo._attention import Attention, Rows
from rocade.demo._cache import PageArrays, PagedCache
from rocade.demo._gguf import ModelConfig
from rocade.prefix import find_shared_prefixes

_Wrapper = (
    rocade.MultiLevelCascadeAttentionWrapper
    | rocade.BatchPrefillWithPagedKVCacheWrapper
    | rocade.BatchDecodeWithPagedKVCacheWrapper
)

_WORKSPACE_BYTES = 64 << 20


class _PagedAttention(Attention):
    """The cache side that both ways share; they differ in the wrapper that `_choose` plans."""

    def __init__(self, config: ModelConfig, cache: PagedCache, backend: str) -> None:
        super().__init__(cache.layers[0].dtype)
        self.cache = cache
        self._backend = backend
        self._heads = (config.num_qo_heads, config.num_kv_heads, config.head_dim, cache.page_size)
        self._workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8)

    def kv_bytes(self, sequences: list[int]) -> int:
        """Bytes of the pages in use, a shared page once."""
        return self.cache.bytes_held(sequences)

    def start(self) -> int:
        """A new sequence of the pool."""
        return self.cache.fork()

    def fork(self, prompt: int, count: int) -> list[int]:
        """Sequences that begin with the prompt's pages."""
        return [self.cache.fork(prompt) for _ in range(count)]

    def _extend(self, rows: Rows) -> torch.Tensor:
        for sequence, count in zip(rows.sequences, rows.counts, strict=True):
            self.cache.extend(sequence, count)
        self._pages = self.cache.arrays(rows.sequences)
        lengths = [self.cache.length(s) for s in rows.sequences]
        position = rows.positions(lengths)
        self._owner, self._position = rows.owners().int(), position.int()
        return position

    def _plan(self, rows: Rows) -> None:
        qo_indptr = torch.tensor([0, *rows.counts]).cumsum(0).int()
        self._wrapper = self._choose(qo_indptr, self._pages, decode=set(rows.counts) == {1})

    def _append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        indptr, indices, last_page_len = self._pages
        rocade.append_paged_kv_cache(
            k, v, self._owner, self._position, self.cache.layers[layer], indices, indptr, last_page_len
        )

    def _attend(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        return self._wrapper.run(q, self.cache.layers[layer])

    def explain(self) -> list[str]:
        """Which backend the last plan runs on, and why that one, in lines."""
        explanation = rocade.explain(self._wrapper)
        order = [verdict.backend for verdict in explanation.verdicts]
        lines = [
            f"{explanation.request.op.value}: {explanation.backend}, the first of {', '.join(order)} "
            f"(the table's order on {explanation.target}) that nothing speaks against"
        ]
        passed = explanation.verdicts[: order.index(explanation.backend or order[-1])]
        return lines + [f"  not {v.backend}: {reason}" for v in passed for reason in v.reasons]

    @abstractmethod
    def _choose(self, qo_indptr: torch.Tensor, pages: PageArrays, *, decode: bool) -> _Wrapper: ...


class CascadeAttention(_PagedAttention):
    """The pages that requests share are found in their page tables and read once for all of them."""

    name = "rocade cascade"

    def __init__(self, config: ModelConfig, cache: PagedCache, backend: str) -> None:
        super().__init__(config, cache, backend)
        self._wrappers: dict[int, rocade.MultiLevelCascadeAttentionWrapper] = {}  # by number of levels
        self.num_levels = 0  # of the last plan

    def _choose(self, qo_indptr: torch.Tensor, pages: PageArrays, *, decode: bool) -> _Wrapper:
        levels = find_shared_prefixes(*pages, self.cache.page_size, qo_indptr)
        self.num_levels = levels.num_levels
        if levels.num_levels not in self._wrappers:
            self._wrappers[levels.num_levels] = rocade.MultiLevelCascadeAttentionWrapper(
                levels.num_levels, self._workspace, backend=self._backend
            )
        wrapper = self._wrappers[levels.num_levels]
        wrapper.plan(*levels, *self._heads, causal=not decode, q_data_type=self._dtype)
        return wrapper


class PagedAttention(_PagedAttention):
    """Every request reads all of its pages, shared or not."""

    name = "rocade paged, no sharing"

    def __init__(self, config: ModelConfig, cache: PagedCache, backend: str) -> None:
        super().__init__(config, cache, backend)
        self._prefill = rocade.BatchPrefillWithPagedKVCacheWrapper(self._workspace, backend=backend)
        self._decode = rocade.BatchDecodeWithPagedKVCacheWrapper(self._workspace, backend=backend)

    def _choose(self, qo_indptr: torch.Tensor, pages: PageArrays, *, decode: bool) -> _Wrapper:
        if decode:
            self._decode.plan(*pages, *self._heads, q_data_type=self._dtype)
            return self._decode
        self._prefill.plan(qo_indptr, *pages, *self._heads, causal=True, q_data_type=self._dtype)
        return self._prefill

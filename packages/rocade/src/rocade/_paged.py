"""What the two wrappers over a paged KV cache share: page table, graph buffers, the views of the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from rocade import _layout
from rocade._errors import invalid
from rocade._plan import KV, Source
from rocade._problem import Problem
from rocade._wrapper import BatchWrapper, graph_buffer, persist

Buffer = torch.Tensor | None


class PagedWrapper(BatchWrapper):
    """Base of paged prefill and decode. In graph mode plans live in the caller's buffers, and B is fixed."""

    _buffers: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None  # of graph mode
    _fixed_batch_size = 0

    def _keep_buffers(self, indptr: Buffer, indices: Buffer, last_page_len: Buffer, suffix: str) -> None:
        """Take over the page-table buffers, all three required in graph mode. `suffix` ends their names."""
        if not self._use_cuda_graph:
            return
        ids = graph_buffer(f"paged_kv_indices_{suffix}", indices, self.device)
        last = graph_buffer(f"paged_kv_last_page_len_{suffix}", last_page_len, self.device)
        self._fixed_batch_size = last.numel()
        starts = graph_buffer(f"paged_kv_indptr_{suffix}", indptr, self.device, self._fixed_batch_size + 1)
        self._buffers = starts, ids, last

    # FlashInfer's private names of the planned table, which engines read and, in graph mode, write into.

    @property
    def _paged_kv_indptr_buf(self) -> Buffer:
        return self._table(0)

    @property
    def _paged_kv_indices_buf(self) -> Buffer:
        return self._table(1)

    @property
    def _paged_kv_last_page_len_buf(self) -> Buffer:
        return self._table(2)

    def _table(self, which: int) -> Buffer:
        """An array of the graph buffers, or of the current plan if there is one."""
        if self._buffers is not None:
            return self._buffers[which]
        table = None if self._problem is None else self._problem.levels[0].pages
        return None if table is None else (table.indptr, table.indices, table.last_page_len)[which]

    def _check_batch(self, name: str, batch: int) -> None:
        """In graph mode the batch size is that of the buffers."""
        if self._use_cuda_graph and batch != self._fixed_batch_size:
            raise invalid(name, f"{batch} requests", f"{self._fixed_batch_size}, fixed by the graph buffers")

    def _max_keys(self, problem: Problem) -> tuple[int, ...]:
        """As many as the buffer of page ids has pages for."""
        ids, table = self._paged_kv_indices_buf, problem.levels[0].pages
        assert ids is not None  # checked by _keep_buffers in graph mode
        assert table is not None  # this wrapper plans paged levels only
        return (ids.numel() * table.page_size,)

    def _sources(self, caches: int) -> tuple[Source, ...]:
        return (Source(0, 1, caches),)

    def _settle(self, problem: Problem) -> Problem:
        """The problem with its page table where the plan reads it: in graph mode, the caller's buffers."""
        level = problem.levels[0]
        table = level.pages
        assert table is not None  # this wrapper plans paged levels only
        if self._buffers is None:
            return problem
        indptr, ids, last = self._buffers
        # The page ids first: of the three, they alone may not fit.
        indices = persist("paged_kv_indices", ids, table.indices[: int(table.indptr[-1])])
        persist("paged_kv_indptr", indptr, table.indptr)
        persist("paged_kv_last_page_len", last, table.last_page_len)
        level = level.with_pages(table.with_indices(indices))
        return dataclasses.replace(problem, levels=(level,))

    def _caches(self, caches: Sequence[torch.Tensor]) -> tuple[KV, ...]:
        request, problem = self._current().request, self._problem
        assert problem is not None  # set together with the plan
        table = problem.levels[0].pages
        assert table is not None  # this wrapper plans paged levels only
        kv = _layout.paged(caches[0] if len(caches) == 1 else caches, self._layout)
        _layout.check_paged(kv, request, table.max_page, problem.device, "paged_kv_cache")
        return (kv,)

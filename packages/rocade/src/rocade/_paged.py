"""What the two wrappers over a paged KV cache share: page table, graph buffers, the views of the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from rocade import _layout
from rocade._errors import invalid
from rocade._plan import KV
from rocade._problem import Problem
from rocade._wrapper import BatchWrapper, graph_buffer, persist

Buffer = torch.Tensor | None


class PagedWrapper(BatchWrapper):
    """Base of paged prefill and decode. In graph mode plans live in the caller's buffers, and B is fixed."""

    _paged_kv_indptr_buf: Buffer = None
    _paged_kv_indices_buf: Buffer = None
    _paged_kv_last_page_len_buf: Buffer = None
    _fixed_batch_size = 0

    def _keep_buffers(self, indptr: Buffer, indices: Buffer, last_page_len: Buffer, suffix: str) -> None:
        """Take over the page-table buffers, all three required in graph mode. `suffix` ends their names."""
        self._paged_kv_indptr_buf = indptr
        self._paged_kv_indices_buf = indices
        self._paged_kv_last_page_len_buf = last_page_len
        if not self._use_cuda_graph:
            return
        graph_buffer(f"paged_kv_indices_{suffix}", indices, self.device)
        last = graph_buffer(f"paged_kv_last_page_len_{suffix}", last_page_len, self.device)
        self._fixed_batch_size = last.numel()
        graph_buffer(f"paged_kv_indptr_{suffix}", indptr, self.device, self._fixed_batch_size + 1)

    def _check_batch(self, name: str, batch: int) -> None:
        """In graph mode the batch size is that of the buffers."""
        if self._use_cuda_graph and batch != self._fixed_batch_size:
            raise invalid(name, f"{batch} requests", f"{self._fixed_batch_size}, fixed by the graph buffers")

    def _settle(self, problem: Problem) -> Problem:
        """The problem with its page table where the plan reads it: in graph mode, the caller's buffers."""
        level = problem.levels[0]
        table = level.pages
        assert table is not None  # this wrapper plans paged levels only
        if not self._use_cuda_graph:
            self._paged_kv_indptr_buf = table.indptr
            self._paged_kv_indices_buf = table.indices
            self._paged_kv_last_page_len_buf = table.last_page_len
            return problem
        ids, indptr = self._paged_kv_indices_buf, self._paged_kv_indptr_buf
        last = self._paged_kv_last_page_len_buf
        assert ids is not None  # all three were checked by _keep_buffers
        assert indptr is not None
        assert last is not None
        # The page ids first: of the three, they alone may not fit.
        indices = persist("paged_kv_indices", ids, table.indices[: int(table.indptr[-1])])
        persist("paged_kv_indptr", indptr, table.indptr)
        persist("paged_kv_last_page_len", last, table.last_page_len)
        table = dataclasses.replace(table, indices=indices)
        return dataclasses.replace(problem, levels=(dataclasses.replace(level, pages=table),))

    def _caches(self, caches: Sequence[torch.Tensor]) -> tuple[KV, ...]:
        request, problem = self._current().request, self._problem
        assert problem is not None  # set together with the plan
        table = problem.levels[0].pages
        assert table is not None  # this wrapper plans paged levels only
        kv = _layout.paged(caches[0] if len(caches) == 1 else caches, self._layout)
        _layout.check_paged(kv, request, table.max_page, problem.device, "paged_kv_cache")
        return (kv,)

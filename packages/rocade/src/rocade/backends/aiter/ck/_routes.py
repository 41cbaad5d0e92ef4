"""The three ways into AITER's libraries: dense, ragged (also for gathered pages), and pages read in place.

A route is planned once, and holds what its calls need on the device.
"""

from __future__ import annotations

from typing import Protocol

import torch

from arch_caps import Request
from rocade._plan import KV
from rocade._problem import Level
from rocade.backends.aiter._gather import FlatGather
from rocade.backends.aiter._readable import readable_keys
from rocade.backends.aiter.ck._operands import Operands, check_reach, shared
from rocade.backends.aiter.ck._pages import PagesInPlace
from rocade_kernels.aiter import calls
from rocade_kernels.aiter.names import Family


class Route(Protocol):
    """How the keys of a plan reach one of AITER's functions."""

    family: Family

    def keys(self, kv: KV) -> KV:
        """K and V as the function takes them: the caller's, or copies."""

    def call(self, library: calls.Library, given: Operands, stream: int) -> None:
        """Queue the kernel."""

    def spoil(self, out: torch.Tensor, natural: torch.Tensor | None, kv: KV) -> None:
        """Make NaN what was computed without a key that could not be read."""


class DenseRoute:
    """One request, without a soft cap."""

    family = Family.MHA_FWD

    def __init__(self, request: Request, level: Level) -> None:
        self._request = request
        self._kv_len = int(level.kv_len[0])

    def keys(self, kv: KV) -> KV:
        """The caller's, where readable."""
        return readable_keys(kv)

    def call(self, library: calls.Library, given: Operands, stream: int) -> None:
        """Queue mha_fwd."""
        q_len = given.q.shape[0]
        check_reach("q", given.q, q_len)
        check_reach("k", given.k, self._kv_len)
        check_reach("v", given.v, self._kv_len)
        call = calls.Dense(**shared(self._request, 1, given), q_len=q_len, kv_len=self._kv_len)
        calls.mha_fwd(library, call, stream)

    def spoil(self, out: torch.Tensor, natural: torch.Tensor | None, kv: KV) -> None:
        """Nothing: every key is read."""


class RaggedRoute:
    """Requests one after another, dense or gathered from pages; a single request with a soft cap."""

    family = Family.MHA_VARLEN_FWD

    def __init__(self, request: Request, level: Level, device: torch.device) -> None:
        self._request = request
        self._gather = None if level.pages is None else FlatGather(level, device)
        kv_indptr = level.kv_indptr if self._gather is None else self._gather.kv_indptr
        assert kv_indptr is not None  # set where there are no pages
        self._q_indptr = level.qo_indptr.to(device)
        self._kv_indptr = kv_indptr.to(device)
        self._total_kv = int(kv_indptr[-1])
        self._longest_q = int(level.qo_indptr.diff().max())
        self._longest_kv = int(level.kv_len.max())

    def keys(self, kv: KV) -> KV:
        """The caller's dense rows, where readable, or those of the pages."""
        return readable_keys(kv) if self._gather is None else self._gather.dense(kv)

    def call(self, library: calls.Library, given: Operands, stream: int) -> None:
        """Queue mha_varlen_fwd."""
        check_reach("q", given.q, self._longest_q)
        check_reach("k", given.k, self._longest_kv)
        check_reach("v", given.v, self._longest_kv)
        call = calls.Ragged(
            **shared(self._request, self._q_indptr.numel() - 1, given),
            q_indptr=self._q_indptr.data_ptr(),
            kv_indptr=self._kv_indptr.data_ptr(),
            total_q=given.q.shape[0],
            total_kv=self._total_kv,
            max_q_len=self._longest_q,
        )
        calls.mha_varlen_fwd(library, call, stream)

    def spoil(self, out: torch.Tensor, natural: torch.Tensor | None, kv: KV) -> None:
        """Nothing: the gather put NaN in place of keys that it could not read."""


class PagedRoute:
    """Pages read in place."""

    family = Family.MHA_BATCH_PREFILL

    def __init__(self, request: Request, level: Level, device: torch.device) -> None:
        self._request = request
        self._q_indptr = level.qo_indptr.to(device)
        self._longest_q = int(level.qo_indptr.diff().max())
        self._pages = PagesInPlace(level, device)

    def keys(self, kv: KV) -> KV:
        """The caller's pool, where readable; one without pages becomes a page of zeros."""
        if not kv.k.shape[0]:
            page = kv.k.new_zeros((1, *kv.k.shape[1:]))
            return KV(page, page)
        return readable_keys(kv)

    def call(self, library: calls.Library, given: Operands, stream: int) -> None:
        """Queue mha_batch_prefill."""
        check_reach("q", given.q, self._longest_q)
        indices = self._pages.ids(given.k.shape[0])
        call = calls.Paged(
            **shared(self._request, self._q_indptr.numel() - 1, given),
            q_indptr=self._q_indptr.data_ptr(),
            kv_indptr=self._pages.indptr.data_ptr(),
            kv_indices=indices.data_ptr(),
            last_page_len=self._pages.last_page_len.data_ptr(),
            total_q=given.q.shape[0],
            max_q_len=self._longest_q,
            page_size=self._request.page_size,
            num_pages=given.k.shape[0],
        )
        calls.mha_batch_prefill(library, call, stream)

    def spoil(self, out: torch.Tensor, natural: torch.Tensor | None, kv: KV) -> None:
        """Results of requests whose table names a page outside the pool."""
        self._pages.spoil(out, natural, kv.k.shape[0])

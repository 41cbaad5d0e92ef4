"""In the child: runs a library on the tiny problems, through the loader, and compares with fp64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rocade.backends.aiter.bootstrap import _cases
from rocade.backends.aiter.bootstrap._cases import Mask
from rocade.backends.aiter.bootstrap._verdicts import Outcome
from rocade_kernels.aiter import calls
from rocade_kernels.aiter.errors import NoKernelError
from rocade_kernels.aiter.names import RAGGED, Family, VariantKey

UNUSED = torch.nan  # in memory that holds no key of a request; it must not reach a result, not even times 0
GAP = 40  # rows of that between requests, less than a tile of keys
TABLE_PAD = 256  # entries; old versions read a tile past the end of a page table


def run(
    library: str, key: Mapping[str, Any], version: str, device: str, head_dim: int, page_size: int
) -> dict[str, str]:
    """Outcome and detail for one library and head size."""
    variant = VariantKey(**{**key, "family": Family(key["family"])})
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    loaded = calls.load(Path(library), variant, version)
    wrong = []
    for mask in _cases.masks(variant):
        try:
            found = _tried(loaded, mask, place, head_dim, page_size)
        except NoKernelError as error:
            return {"outcome": Outcome.NO_KERNEL, "detail": f"{mask}: {error}"}
        if found:
            wrong.append(f"{mask}: {found}")
    if wrong:
        return {"outcome": Outcome.WRONG, "detail": "; ".join(wrong)}
    return {"outcome": Outcome.RIGHT, "detail": ", ".join(map(str, _cases.masks(variant)))}


def _tried(library: calls.Library, mask: Mask, device: torch.device, head_dim: int, page_size: int) -> str:
    """What is wrong with the results under one mask."""
    key = library.key
    ragged = key.family in RAGGED or key.family is Family.MHA_BATCH_PREFILL
    lengths = _cases.LENGTHS if ragged else _cases.LENGTHS[-1:]
    if page_size:
        lengths = (*lengths[:-1], (lengths[-1][0], max(lengths[-1][1], page_size + 77)))
    given = _cases.rows(key, head_dim, lengths)
    out = torch.full_like(given.q, torch.nan).to(device)
    lse = torch.full((given.q.shape[1], given.q.shape[0]), torch.nan, device=device) if key.has_lse else None
    _Call(library, mask, given, device, out, lse).make(page_size)
    right = _cases.answer(given, mask, key.dtype)
    return _cases.verdict(out.cpu(), None if lse is None else lse.cpu(), right)


@dataclass(frozen=True, slots=True)
class _Call:
    """One call, with the tensors that must live until it is done."""

    library: calls.Library
    mask: Mask
    given: _cases.Rows
    device: torch.device
    out: torch.Tensor
    lse: torch.Tensor | None

    def make(self, page_size: int) -> None:
        """Call AITER and wait for it."""
        queue = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0
        q, k, v = (x.to(self.device) for x in (self.given.q, self.given.k, self.given.v))
        common = self._common(q)
        if page_size:
            self._paged(common, k, v, page_size, queue)
        elif self.library.key.family in RAGGED:
            self._ragged(common, k, v, queue)
        else:
            self._dense(common, k, v, queue)

    def _common(self, q: torch.Tensor) -> dict[str, Any]:
        lse = self.lse
        return {
            "q": _rows(q),
            "out": _rows(self.out),
            "lse": None if lse is None else calls.Lse(lse.data_ptr(), lse.stride(0), lse.numel()),
            "batch": len(self.given.lengths),
            "num_qo_heads": q.shape[1],
            "num_kv_heads": _cases.KV_HEADS,
            "head_dim_qk": q.shape[2],
            "head_dim_vo": q.shape[2],
            "scale": self.given.scale,
            "logits_soft_cap": self.given.soft_cap,
            "causal": self.mask.causal,
            "window_left": self.mask.window_left,
        }

    def _finish(self) -> None:
        """Tensors of the call may be freed after this."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _dense(self, common: dict[str, Any], k: torch.Tensor, v: torch.Tensor, queue: int) -> None:
        ((q_len, kv_len),) = self.given.lengths
        k, v = (self._spaced(x, [0, kv_len])[GAP : GAP + kv_len] for x in (k, v))
        call = calls.Dense(**common, k=_rows(k), v=_rows(v), q_len=q_len, kv_len=kv_len)
        dense = calls.mha_fwd if self.library.key.family is Family.MHA_FWD else calls.fmha_v3_fwd
        dense(self.library, call, queue)
        self._finish()

    def _ragged(self, common: dict[str, Any], k: torch.Tensor, v: torch.Tensor, queue: int) -> None:
        lengths = [request for pair in self.given.lengths for request in (pair, (0, GAP))]
        k, v = (self._spaced(x, [kv_len for _, kv_len in self.given.lengths]) for x in (k, v))
        q_indptr, kv_indptr = (self._indptr([pair[side] for pair in lengths]) for side in (0, 1))
        call = calls.Ragged(
            **{**common, "batch": len(lengths)},
            k=_rows(k),
            v=_rows(v),
            q_indptr=q_indptr.data_ptr(),
            kv_indptr=kv_indptr.data_ptr(),
            total_q=self.out.shape[0],
            total_kv=k.shape[0],
            max_q_len=max(q_len for q_len, _ in lengths),
        )
        varlen = self.library.key.family is Family.MHA_VARLEN_FWD
        (calls.mha_varlen_fwd if varlen else calls.fmha_v3_varlen_fwd)(self.library, call, queue)
        self._finish()

    def _paged(
        self, common: dict[str, Any], k: torch.Tensor, v: torch.Tensor, page_size: int, queue: int
    ) -> None:
        lengths = [kv_len for _, kv_len in self.given.lengths]
        counts = [-(-length // page_size) for length in lengths]
        order = torch.randperm(sum(counts) + 1, generator=torch.Generator("cpu").manual_seed(1), device="cpu")
        pages = order[: sum(counts)]  # and one page of the pool that no request has
        caches = [self._cache(x, lengths, pages, page_size) for x in (k, v)]
        table = torch.zeros(len(pages) + TABLE_PAD, dtype=torch.int32, device=self.device)
        table[: len(pages)] = pages
        last = self._int32([(length - 1) % page_size + 1 for length in lengths])
        q_indptr, kv_indptr = self._indptr([q_len for q_len, _ in self.given.lengths]), self._indptr(counts)
        k_rows, v_rows = (calls.Rows(x.data_ptr(), x.stride(1), x.stride(2), x.stride(0)) for x in caches)
        call = calls.Paged(
            **common,
            k=k_rows,
            v=v_rows,
            q_indptr=q_indptr.data_ptr(),
            kv_indptr=kv_indptr.data_ptr(),
            kv_indices=table.data_ptr(),
            last_page_len=last.data_ptr(),
            total_q=self.out.shape[0],
            max_q_len=max(q_len for q_len, _ in self.given.lengths),
            page_size=page_size,
            num_pages=caches[0].shape[0],
        )
        calls.mha_batch_prefill(self.library, call, queue)
        self._finish()

    @staticmethod
    def _spaced(x: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """The rows of each request, with unused ones after them."""
        unused = x.new_full((GAP, *x.shape[1:]), UNUSED)
        return torch.cat([part for rows in torch.split(x, lengths) for part in (rows, unused)])

    def _cache(
        self, x: torch.Tensor, lengths: list[int], pages: torch.Tensor, page_size: int
    ) -> torch.Tensor:
        """A pool `[pages, page_size, heads, dim]` with the rows of `x` on the pages of each request."""
        pool = torch.full(
            (len(pages) + 1, page_size, *x.shape[1:]), UNUSED, dtype=x.dtype, device=self.device
        )
        row = page = 0
        for length in lengths:
            for first in range(0, length, page_size):
                size = min(page_size, length - first)
                pool[int(pages[page]), :size] = x[row : row + size]
                row, page = row + size, page + 1
        return pool

    def _indptr(self, lengths: list[int]) -> torch.Tensor:
        return self._int32([sum(lengths[:count]) for count in range(len(lengths) + 1)])

    def _int32(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)


def _rows(x: torch.Tensor) -> calls.Rows:
    """A tensor `[tokens, heads, dim]`; as one sequence of a batch it is the whole tensor."""
    return calls.Rows(x.data_ptr(), x.stride(0), x.stride(1), x.numel())

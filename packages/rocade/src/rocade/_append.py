"""Appending to a paged cache, below the public function: checks, dispatch, one backend call.

Letters: nnz new tokens, N pages, S page size, Hkv heads, D head dims.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from arch_caps import Layout, Request
from rocade import _checks, _dispatch, _layout, _replay, _request
from rocade._errors import invalid
from rocade._layout import PagedCache
from rocade._plan import KV
from rocade._run_checks import overlap

__all__ = ["PagedCache", "append", "check_lengths", "tensors"]


def tensors(cache: PagedCache) -> list[torch.Tensor]:
    """The one or two tensors of a cache, as an operator takes them."""
    return list(_layout.flat(cache))


def append(
    key: torch.Tensor,
    value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    caches: Sequence[torch.Tensor],
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    kv_layout: str,
    backend: str,
) -> None:
    """Write `key, value [nnz, Hkv, D]` into one 5-D cache or two 4-D ones."""
    kind = ("append" if len(caches) == 1 else "append to two", f"{backend}, {kv_layout}")
    tensors = (key, value, batch_indices, positions, *caches, kv_indices, kv_indptr)
    if (repeat := _replay.find(kind)) and not _checks.is_readable(kv_indptr) and repeat(*tensors):
        return
    layout = _layout.kv_layout(kv_layout)
    kv = _layout.paged(caches[0] if len(caches) == 1 else caches, layout)
    _check_cache(kv)
    _check_tokens("append_key", key, kv.k)
    _check_tokens("append_value", value, kv.v)
    _check_apart(key, value, kv)
    if key.shape[0] != value.shape[0]:
        raise invalid("append_value", f"{value.shape[0]} tokens", f"{key.shape[0]}, as append_key has")
    batch = _token_array("batch_indices", batch_indices, key)
    position = _token_array("positions", positions, key)
    if _checks.is_readable(kv_indptr):
        size = kv.k.shape[1]
        table = _checks.pages(kv_indptr, kv_indices, kv_last_page_len, size, key.device, names=_NAMES)
        _check_places(batch, position, table, kv.k.shape[0])
    if not key.shape[0]:
        return
    ids = _checks.page_ids("kv_indices", kv_indices, key.device)
    starts = _checks.page_ids("kv_indptr", kv_indptr, key.device)
    request = _request_of(key.dtype, kv.k.shape[2], kv.k.shape[3], kv.v.shape[3], kv.k.shape[1], layout)
    chosen = _dispatch.select(request, key.device, backend)
    chosen.append_paged_kv_cache(key, value, batch, position, kv.k, kv.v, ids, starts)
    if not _checks.is_readable(kv_indptr):
        _replay.learn(chosen, kind, tensors)


def check_lengths(append_indptr: torch.Tensor, seq_lens: torch.Tensor, nnz: int) -> None:
    """Raise ValueError unless each request is at least as long as its new tokens and `nnz` rows hold all."""
    if append_indptr.dim() != 1 or not append_indptr.shape[0]:
        raise invalid("append_indptr", f"shape {list(append_indptr.shape)}", "[B + 1]")
    if seq_lens.shape != (append_indptr.shape[0] - 1,):
        raise invalid("seq_lens", f"shape {list(seq_lens.shape)}", f"[{append_indptr.shape[0] - 1}]")
    if torch.compiler.is_compiling() or not _checks.is_readable(append_indptr):
        return
    rows = _checks.rows("append_indptr", append_indptr, first=None)
    if rows.total > nnz:
        raise invalid("nnz", nnz, f"at least {rows.total}, append_indptr[-1]")
    if not _checks.is_readable(seq_lens):
        return
    short = seq_lens.cpu() < rows.indptr.diff()
    if bool(short.any()):
        at = int(short.int().argmax())
        new = int(rows.indptr.diff()[at])
        raise invalid(f"seq_lens[{at}]", int(seq_lens[at]), f"at least the {new} new tokens")


_NAMES = _checks.PageNames("kv_indptr", "kv_indices", "kv_last_page_len")


@functools.lru_cache(maxsize=256)
def _request_of(
    dtype: torch.dtype, heads: int, dim_k: int, dim_v: int, page_size: int, layout: Layout
) -> Request:
    return _request.append(
        key_dtype=dtype,
        cache_dtype=dtype,
        num_kv_heads=heads,
        head_dim_qk=dim_k,
        head_dim_vo=dim_v,
        page_size=page_size,
        kv_layout=layout,
    )


def _check_cache(kv: KV) -> None:
    """Raise ValueError unless K and V are pools of the same pages that can be written."""
    k, v = kv
    if k.shape[:3] != v.shape[:3] or k.dtype != v.dtype or k.device != v.device:
        given = f"K {k.dtype} {list(k.shape)} on {k.device}, V {v.dtype} {list(v.shape)} on {v.device}"
        raise invalid("paged_kv_cache", given, "K and V alike but for head_dim")
    for name, pool in (("paged_kv_cache (K)", k), ("paged_kv_cache (V)", v)):
        _layout.check_rows_contiguous(name, pool)
        _layout.check_writable(name, pool)


def _check_tokens(name: str, tokens: object, pool: torch.Tensor) -> None:
    """Raise ValueError unless `tokens [nnz, Hkv, D]` fit a pool `[N, S, Hkv, D]`."""
    if not isinstance(tokens, torch.Tensor) or tokens.dim() != 3 or tokens.shape[1:] != pool.shape[2:]:
        given = f"shape {list(tokens.shape)}" if isinstance(tokens, torch.Tensor) else type(tokens).__name__
        raise invalid(name, given, f"shape [nnz, {pool.shape[2]}, {pool.shape[3]}], as the cache has")
    if tokens.dtype != pool.dtype:
        raise invalid(name, tokens.dtype, f"{pool.dtype} as the cache has; convert it with .to() first")
    if tokens.device != pool.device:
        raise invalid(name, f"device {tokens.device}", f"device {pool.device}, where the cache is")
    _layout.check_rows_contiguous(name, tokens)
    _layout.check_no_grad(name, tokens)


def _check_apart(key: torch.Tensor, value: torch.Tensor, kv: KV) -> None:
    """Raise ValueError when tokens lie in the cache that is written, or K and V are one pool by mistake.

    Pools that take turns in one buffer are common, so that they lie apart cannot be told from their extents.
    """
    for name, tokens in (("append_key", key), ("append_value", value)):
        storage = tokens.untyped_storage().data_ptr()
        if any(pool.untyped_storage().data_ptr() == storage and overlap(tokens, pool) for pool in kv):
            raise invalid(
                name, "memory of the cache", "memory of its own: it is read as the cache is written"
            )
    if kv.k.data_ptr() == kv.v.data_ptr() and kv.k.numel() and key.data_ptr() != value.data_ptr():
        raise invalid("paged_kv_cache", "K and V at the same address", "a cache for each")


def _token_array(name: str, array: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """int32 `[nnz]` on the device of the tokens."""
    array = _checks.page_ids(name, array, key.device)
    if array.shape[0] != key.shape[0]:
        raise invalid(name, f"{array.shape[0]} entries", f"{key.shape[0]}, one for each token")
    return array


def _check_places(batch: torch.Tensor, position: torch.Tensor, pages: _checks.Pages, num_pages: int) -> None:
    """Raise ValueError when a token that may be read has no request, no page, or a page outside the pool."""
    if pages.table.max_page >= num_pages:
        raise invalid(
            "kv_indices", f"page {pages.table.max_page}", f"0 to {num_pages - 1}, pages of the cache"
        )
    if not batch.shape[0] or not _checks.is_readable(batch):
        return
    batch, position = batch.cpu(), position.cpu()
    low, high = (int(x) for x in batch.aminmax())
    num_requests = pages.kv_len.shape[0]
    if low < -1 or high >= num_requests:
        raise invalid("batch_indices", low if low < -1 else high, f"-1 to skip, or 0 to {num_requests - 1}")
    if high < 0:
        return
    if low < 0:
        kept = batch >= 0
        batch, position = batch[kept], position[kept]
    room = pages.table.indptr.diff().to(torch.int64).mul_(pages.table.page_size)[batch]
    if int(position.min()) < 0 or bool((position >= room).any()):
        at = int(((position < 0) | (position >= room)).int().argmax())
        expected = f"0 to {int(room[at]) - 1}, in the pages of request {int(batch[at])}"
        raise invalid("positions", int(position[at]), expected)

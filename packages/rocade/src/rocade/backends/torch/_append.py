"""Writing new tokens into a paged cache, on any device, without reading indices back to the host."""

from __future__ import annotations

import torch


def append(
    key: torch.Tensor,
    value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
) -> None:
    """Write `key, value [nnz, Hkv, D]` into NHD views `[N, S, Hkv, D]` with any strides.

    A token is skipped when its batch index is -1 (or no request), or its page is not in its request's
    table or not in the pool: nothing is ever written out of bounds.
    """
    if not (key.shape[0] and k_cache.shape[0] and kv_indices.numel() and kv_indptr.numel() > 1):
        return
    page, slot, real = _place(batch_indices, positions, kv_indices, kv_indptr, k_cache.shape)
    # A skipped token repeats the first real one, so that no shape depends on the data; with none at all, it
    # writes back what it finds.
    source = torch.where(real, torch.arange(key.shape[0], device=key.device), real.to(torch.int8).argmax())
    page, slot, any_real = page[source], slot[source], real.any()
    for new, cache in ((key, k_cache), (value, v_cache)):
        new, cache = _bytes_if_fp8(new.to(cache.dtype)), _bytes_if_fp8(cache)
        cache[page, slot] = torch.where(any_real, new[source], cache[page, slot])


def _place(
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    pool: torch.Size,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Page and slot of each token, inside the pool even where the third result, "is written", is False."""
    num_pages, page_size = pool[:2]
    request, position = batch_indices.to(torch.int64), positions.to(torch.int64)
    indptr = kv_indptr.to(request.device, torch.int64)
    real = (request >= 0) & (request < indptr.numel() - 1) & (position >= 0)
    request, position = request.where(real, 0), position.where(real, 0)
    entry = indptr[request] + position // page_size
    real &= (entry < indptr[request + 1]) & (entry < kv_indices.numel())
    page = kv_indices[entry.where(real, 0)].to(torch.int64)
    real &= (page >= 0) & (page < num_pages)
    return page.where(real, 0), (position % page_size).where(real, 0), real


def _bytes_if_fp8(x: torch.Tensor) -> torch.Tensor:
    """fp8 tensors as bytes: indexing and `where` are not defined for every 8-bit float."""
    return x.view(torch.uint8) if x.dtype.itemsize == 1 else x

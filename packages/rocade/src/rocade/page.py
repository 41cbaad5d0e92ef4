"""Writing new keys and values into a paged cache, and the small index arithmetic around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rocade import _append, _ops, _refused
from rocade._errors import invalid

if not TYPE_CHECKING:
    __getattr__ = _refused.attributes(__name__)

__all__ = ["append_paged_kv_cache", "get_batch_indices_positions", "get_seq_lens"]


def append_paged_kv_cache(
    append_key: torch.Tensor,
    append_value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    paged_kv_cache: _append.PagedCache,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    kv_layout: str = "NHD",
    *,
    backend: str = "auto",
) -> None:
    """Write new tokens into a paged cache, in place. The page tables already include the new tokens.

    Token i goes to page `kv_indices[kv_indptr[b] + p // page_size]`, slot `p % page_size`, with `b` and `p`
    its batch index and position. Arrays on the host are checked; on a device a token that belongs nowhere is
    skipped.

    Args:
        append_key: `[nnz, num_kv_heads, head_dim]`, the dtype of the cache. fp8 caches take fp8 tokens.
        append_value: like `append_key`, its head_dim may differ.
        batch_indices: int32 `[nnz]`, the request of each token; -1 skips a token.
        positions: int32 `[nnz]`, the place of each token in its request.
        paged_kv_cache: one tensor NHD `[pages, 2, page_size, num_kv_heads, head_dim]` or HND `[pages, 2,
            num_kv_heads, page_size, head_dim]`, or a tuple of K and V without dimension 1; any strides but
            the last.
        kv_indices: int32 `[>= kv_indptr[-1]]`, page ids.
        kv_indptr: int32 `[B + 1]`, first page of each request; may start above 0.
        kv_last_page_len: int32 `[B]`, tokens in each request's last page, the new ones included.
        kv_layout: `"NHD"` or `"HND"`.
        backend: `"auto"` or the name of a backend.

    Raises:
        ValueError: a shape, dtype, device or, on the host, an index does not fit.
        ArchCapabilityError: no backend serves this; it lists why.
    """
    caches = _append.tensors(paged_kv_cache)
    compiling = torch.compiler.is_compiling()
    run = torch.ops.rocade.append_paged_kv_cache if compiling else _append.append
    arrays = (batch_indices, positions, caches, kv_indices, kv_indptr, kv_last_page_len)
    run(append_key, append_value, *arrays, kv_layout, backend)


def get_seq_lens(kv_indptr: torch.Tensor, kv_last_page_len: torch.Tensor, page_size: int) -> torch.Tensor:
    """Length of each request from its page table, without reading device memory on the host.

    Args:
        kv_indptr: int32 `[B + 1]`, first page of each request.
        kv_last_page_len: int32 `[B]`, tokens in the last page; ignored for a request without pages.
        page_size: tokens a page.

    Returns:
        int32 `[B]`; 0 for a request without pages.

    Raises:
        ValueError: the arrays do not belong together.
    """
    if kv_indptr.dim() != 1 or kv_last_page_len.shape != (max(kv_indptr.shape[0] - 1, 0),):
        given = f"shape {list(kv_last_page_len.shape)}"
        raise invalid("kv_last_page_len", given, "one entry less than kv_indptr")
    if page_size < 1:
        raise invalid("page_size", page_size, "at least 1")
    num_pages = kv_indptr.diff()
    lengths = (num_pages - 1) * page_size + kv_last_page_len.to(num_pages.device)
    return torch.where(num_pages > 0, lengths, 0).to(torch.int32)


def get_batch_indices_positions(
    append_indptr: torch.Tensor,
    seq_lens: torch.Tensor,
    nnz: int,
    batch_indices: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Request and position of each appended token; the new tokens are the last ones of their request.

    Args:
        append_indptr: int32 `[B + 1]`, first new token of each request.
        seq_lens: int32 `[B]`, length of each request with its new tokens.
        nnz: rows of the result; rows beyond `append_indptr[-1]` are padding.
        batch_indices: int32 `[nnz]` to write into.
        positions: int32 `[nnz]` to write into.

    Returns:
        `batch_indices` and `positions`, int32 `[nnz]` on the device of `append_indptr`. Padding rows hold -1
        and 0.

    Raises:
        ValueError: the arrays do not belong together; on the host also when a request is shorter than its new
            tokens, or `nnz` is too small.
    """
    _append.check_lengths(append_indptr, seq_lens, nnz)
    device = append_indptr.device
    row = torch.arange(nnz, dtype=torch.int32, device=device)
    request = torch.searchsorted(append_indptr[1:].contiguous(), row, right=True, out_int32=True)
    real = (request < seq_lens.shape[0]) & (row >= append_indptr[0])
    at = torch.where(real, request, 0)
    shift = torch.nn.functional.pad(seq_lens.to(device) - append_indptr[1:], (0, 1))  # one entry for B = 0
    batch = torch.where(real, request, -1).to(torch.int32)
    position = torch.where(real, row + shift[at], 0).to(torch.int32)
    return _into("batch_indices", batch_indices, batch), _into("positions", positions, position)


def _into(name: str, given: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    """`values`, copied into the caller's tensor when there is one."""
    if given is None:
        return values
    if given.dtype is not torch.int32 or given.shape != values.shape or given.device != values.device:
        expected = f"torch.int32 {list(values.shape)} on {values.device}"
        raise invalid(name, f"{given.dtype} {list(given.shape)} on {given.device}", expected)
    return given.copy_(values)


_ops.define(
    "append_paged_kv_cache(Tensor append_key, Tensor append_value, Tensor batch_indices, Tensor positions, "
    "Tensor(a!)[] paged_kv_cache, Tensor kv_indices, Tensor kv_indptr, Tensor kv_last_page_len, "
    "str kv_layout, str backend) -> ()",
    _append.append,
    lambda *_: None,
)

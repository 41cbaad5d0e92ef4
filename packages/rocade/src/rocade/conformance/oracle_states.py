"""The fp64 reference for what is not attention: merging partial states, sums, and appending to a paged cache.

Letters: n rows, S index sets, H heads, D head dim, N pages, nnz packed rows or tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class MergedState(NamedTuple):
    """A merged state and the magnitude its rounding error is proportional to. All fp64."""

    v: torch.Tensor  # [n, H, D]
    s: torch.Tensor  # [n, H], log2
    v_mass: torch.Tensor  # [n, H, D], weighted mean of |v|


def merge_states(v: torch.Tensor, s: torch.Tensor) -> MergedState:
    """Merge `v [n, S, H, D]`, `s [n, S, H]` over S. A set with s = -inf holds no key, whatever its v."""
    n, num_sets, heads, dim = v.shape
    total_v, total_abs = torch.zeros(2, n, heads, dim, dtype=torch.float64)
    total_w = torch.zeros(n, heads, dtype=torch.float64)
    top = torch.full((n, heads), float("-inf"), dtype=torch.float64)
    for j in range(num_sets):
        top = torch.maximum(top, s[:, j].to(torch.float64))
    for j in range(num_sets):
        s_j = s[:, j].to(torch.float64)
        weight = torch.where(s_j == float("-inf"), torch.zeros_like(s_j), torch.exp2(s_j - top))
        v_j = torch.where(weight[..., None] > 0, v[:, j].to(torch.float64), 0.0)
        total_v += weight[..., None] * v_j
        total_abs += weight[..., None] * v_j.abs()
        total_w += weight
    divisor = torch.where(total_w > 0, total_w, torch.ones_like(total_w))[..., None]
    merged_s = torch.where(total_w > 0, top + total_w.log2(), top)
    return MergedState(total_v / divisor, merged_s, total_abs / divisor)


def merge_state(v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor) -> MergedState:
    """Merge two states `[n, H, D]`, `[n, H]`."""
    pair_v = torch.stack((v_a.to(torch.float64), v_b.to(torch.float64)), dim=1)
    return merge_states(pair_v, torch.stack((s_a.to(torch.float64), s_b.to(torch.float64)), dim=1))


def variable_length_merge_states(v: torch.Tensor, s: torch.Tensor, indptr: Sequence[int]) -> MergedState:
    """Row i merges rows `indptr[i]:indptr[i + 1]` of `v [nnz, H, D]`, `s [nnz, H]`."""
    rows = [
        merge_states(v[indptr[i] : indptr[i + 1]][None], s[indptr[i] : indptr[i + 1]][None])
        for i in range(len(indptr) - 1)
    ]
    if not rows:
        return merge_states(v.new_empty(0, 1, *v.shape[1:]), s.new_empty(0, 1, *s.shape[1:]))
    return MergedState(*(torch.cat(column) for column in zip(*rows, strict=True)))


def attention_sum(v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain sum of `v [n, S, H, D]` over S, and the sum of magnitudes."""
    v64 = v.to(torch.float64)
    return v64.sum(1), v64.abs().sum(1)


def variable_length_attention_sum(
    v: torch.Tensor, indptr: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row i sums rows `indptr[i]:indptr[i + 1]` of `v [nnz, H, D]`; also the sums of magnitudes."""
    v64 = v.to(torch.float64)
    out, mass = torch.zeros(2, len(indptr) - 1, *v.shape[1:], dtype=torch.float64)
    for i in range(len(indptr) - 1):
        for row in range(indptr[i], indptr[i + 1]):
            out[i] += v64[row]
            mass[i] += v64[row].abs()
    return out, mass


def append(
    rows: torch.Tensor,
    batch_indices: Sequence[int],
    positions: Sequence[int],
    cache: torch.Tensor,
    indices: Sequence[int],
    indptr: Sequence[int],
) -> torch.Tensor:
    """A copy of the cache `[N, S, H, D]` with `rows [nnz, H, D]` written; batch index -1 is skipped."""
    result = cache.clone()
    page_size = cache.shape[1]
    for row, b, position in zip(rows, batch_indices, positions, strict=True):
        if b >= 0:
            result[indices[indptr[b] + position // page_size], position % page_size] = row
    return result


def seq_lens(indptr: Sequence[int], last_page_len: Sequence[int], page_size: int) -> list[int]:
    """Tokens of each request; a request without pages has none, whatever its last_page_len."""
    lengths = []
    for b in range(len(indptr) - 1):
        pages = indptr[b + 1] - indptr[b]
        lengths.append((pages - 1) * page_size + last_page_len[b] if pages > 0 else 0)
    return lengths


def batch_positions(append_indptr: Sequence[int], lengths: Sequence[int], nnz: int) -> list[tuple[int, int]]:
    """(request, position) of each appended token, which are a sequence's last ones; padding is (-1, 0)."""
    found = [(-1, 0)] * nnz
    for b in range(len(append_indptr) - 1):
        count = append_indptr[b + 1] - append_indptr[b]
        for i in range(count):
            found[append_indptr[b] + i] = (b, lengths[b] - count + i)
    return found


def pack_bits(flat: Sequence[bool]) -> list[int]:
    """Bytes of one run of bits, little-endian: element 8 k + b is bit b of byte k."""
    packed = [0] * ((len(flat) + 7) // 8)
    for e, bit in enumerate(flat):
        packed[e // 8] |= int(bit) << (e % 8)
    return packed

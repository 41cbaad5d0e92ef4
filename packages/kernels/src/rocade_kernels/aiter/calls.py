"""Calls AITER's attention functions: a frozen description of the call goes through the loader's C ABI.

Addresses are of GPU memory, strides count elements, sizes are in tokens; the last dimension is contiguous.
LSE is fp32, a natural logarithm, a row of tokens for each head: other than rocade's, so the caller converts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rocade_kernels.aiter.library import CALL, Library, load
from rocade_kernels.aiter.names import DTYPES, V3, Family, VariantKey

__all__ = [
    "Attention",
    "Dense",
    "Library",
    "Lse",
    "Paged",
    "Ragged",
    "Rows",
    "fmha_v3_fwd",
    "fmha_v3_varlen_fwd",
    "load",
    "mha_batch_prefill",
    "mha_fwd",
    "mha_varlen_fwd",
]

# What AITER's own front asks before it takes the hand-written kernels; its C++ function asks less.
V3_HEAD_DIMS = ((128, 128), (192, 128))
V3_SHORT_Q_LEN = 128  # of dense sequences; up to this it goes elsewhere
V3_KV_BYTES = 1 << 32  # of all keys, and of all values


class Rows(NamedTuple):
    """A tensor of q, k, v or the output: where it is, and the steps from token to token, head to head.

    `batch` is the step between sequences (mha_fwd) or pages (mha_batch_prefill), 0 where tokens are one row.
    """

    address: int
    token: int
    head: int
    batch: int = 0


class Lse(NamedTuple):
    """Where the LSE goes: the step from head to head, and between sequences of mha_fwd."""

    address: int
    head: int
    batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """What every call has. `lse` is None exactly where the library is one without LSE."""

    q: Rows
    k: Rows
    v: Rows
    out: Rows
    lse: Lse | None
    batch: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim_qk: int
    head_dim_vo: int
    scale: float  # of the softmax
    logits_soft_cap: float = 0.0  # 0 for none
    causal: bool
    window_left: int = -1  # -1 for none

    @property
    def needs_mask(self) -> bool:
        """Whether a library without a mask would compute something else."""
        return self.causal or self.window_left >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(Attention):
    """A call of mha_fwd or fmha_v3_fwd: sequences of one length."""

    q_len: int
    kv_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged(Attention):
    """A call of mha_varlen_fwd or fmha_v3_varlen_fwd: sequences one after the other.

    `q_indptr` and `kv_indptr` are addresses of int32 [batch + 1].
    """

    q_indptr: int
    kv_indptr: int
    total_q: int
    total_kv: int
    max_q_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged(Attention):
    """A call of mha_batch_prefill: keys and values in NHD pages.

    Addresses of int32: `q_indptr` [batch + 1], `kv_indptr` [batch + 1] (pages before each request),
    `kv_indices` (page numbers), `last_page_len` [batch]. Strides of k and v: token within a page, head, page.
    """

    q_indptr: int
    kv_indptr: int
    kv_indices: int
    last_page_len: int
    total_q: int
    max_q_len: int
    page_size: int
    num_pages: int  # of the whole pool


def mha_fwd(library: Library, call: Dense, stream: int) -> None:
    """Dense attention, queued on a stream (the driver's handle).

    Raises:
        NoKernelError: the library has none for this call.
        CallError: AITER threw, or a number does not fit its 32-bit field.
        ValueError: the call is not what the library was built for.
    """
    _check(library, call, Family.MHA_FWD)
    library.run(_pack(library.key, call, stream, _dense(call)))


def mha_varlen_fwd(library: Library, call: Ragged, stream: int) -> None:
    """Ragged attention; errors as `mha_fwd`."""
    _check(library, call, Family.MHA_VARLEN_FWD)
    library.run(_pack(library.key, call, stream, _ragged(call)))


def mha_batch_prefill(library: Library, call: Paged, stream: int) -> None:
    """Attention on pages; errors as `mha_fwd`."""
    _check(library, call, Family.MHA_BATCH_PREFILL)
    library.run(_pack(library.key, call, stream, _paged(call)))


def fmha_v3_fwd(library: Library, call: Dense, stream: int) -> None:
    """Dense attention by hand-written kernels, bf16 only; errors as `mha_fwd`."""
    _check(library, call, Family.FMHA_V3_FWD)
    if call.q_len <= V3_SHORT_Q_LEN:
        raise ValueError(f"{library.key.family} needs more than {V3_SHORT_Q_LEN} queries, not {call.q_len}")
    _check_v3(call, library.key.family, (call.batch - 1, call.kv_len))
    library.run(_pack(library.key, call, stream, _dense(call)))


def fmha_v3_varlen_fwd(library: Library, call: Ragged, stream: int) -> None:
    """Ragged attention by hand-written kernels, bf16 only; errors as `mha_fwd`."""
    _check(library, call, Family.FMHA_V3_VARLEN_FWD)
    _check_v3(call, library.key.family, (0, call.total_kv))
    library.run(_pack(library.key, call, stream, _ragged(call)))


def _check(library: Library, call: Attention, family: Family) -> None:
    """AITER checks little at this level; a call that a library was not built for may give wrong numbers."""
    key = library.key
    if key.family is not family:
        raise ValueError(f"{library.path} is a library of {key.family}, not {family}")
    if call.num_kv_heads <= 0 or call.num_qo_heads % call.num_kv_heads:
        raise ValueError(f"{call.num_qo_heads} query heads are no multiple of {call.num_kv_heads} key heads")
    if family in V3:  # one library for all
        return
    told = {
        "needs a mask": (call.needs_mask, key.needs_mask),
        "has an LSE": (call.lse is not None, key.has_lse),
        "has a soft cap": (call.logits_soft_cap > 0, key.has_logits_cap),
    }
    for what, (asked, built) in told.items():
        if asked != built:
            raise ValueError(f"{what}: {asked} in the call, {built} in {library.path}")


def _check_v3(call: Attention, family: Family, last: tuple[int, int]) -> None:
    """Args: `last` is the last sequence and its number of keys, by which keys and values reach farthest."""
    if call.window_left >= 0 or call.logits_soft_cap > 0:
        raise ValueError(f"{family} has neither a window nor a soft cap")
    dims = call.head_dim_qk, call.head_dim_vo
    if dims not in V3_HEAD_DIMS:
        raise ValueError(f"{family} has head dims {V3_HEAD_DIMS}, not {dims}")
    reach = max(2 * (last[0] * rows.batch + last[1] * rows.token) for rows in (call.k, call.v))
    if reach >= V3_KV_BYTES:
        raise ValueError(f"{family} takes less than {V3_KV_BYTES} bytes of keys or values, not {reach}")


class _Shape(NamedTuple):
    """What entry points differ in, in the order of the C struct."""

    is_ragged: bool
    q_indptr: int
    kv_indptr: int
    kv_indices: int
    last_page_len: int
    page_size: int
    num_pages: int
    q_len: int
    kv_len: int
    max_q_len: int


def _dense(call: Dense) -> _Shape:
    return _Shape(False, 0, 0, 0, 0, 0, 0, call.q_len, call.kv_len, call.q_len)


def _ragged(call: Ragged) -> _Shape:
    sizes = call.total_q, call.total_kv, call.max_q_len
    return _Shape(True, call.q_indptr, call.kv_indptr, 0, 0, 0, 0, *sizes)


def _paged(call: Paged) -> _Shape:
    arrays = call.q_indptr, call.kv_indptr, call.kv_indices, call.last_page_len
    sizes = call.total_q, call.num_pages * call.page_size, call.max_q_len
    return _Shape(True, *arrays, call.page_size, call.num_pages, *sizes)


def _pack(key: VariantKey, call: Attention, stream: int, shape: _Shape) -> bytes:
    """The C struct `rk_aiter_call`."""
    q, k, v, out = call.q, call.k, call.v, call.out
    lse = call.lse or Lse(0, 0)
    return CALL.pack(
        *(stream, DTYPES.index(key.dtype), shape.is_ragged, key.family in V3),
        *(q.address, k.address, v.address, out.address, lse.address),
        *shape[1:7],
        *(call.batch, call.num_qo_heads, call.num_kv_heads, call.head_dim_qk, call.head_dim_vo),
        *shape[7:],
        *(q.token, k.token, v.token, out.token),
        *(q.head, k.head, v.head, out.head, lse.head),
        *(q.batch, k.batch, v.batch, out.batch, lse.batch),
        *(call.causal, call.window_left),
        *(call.scale, call.logits_soft_cap),
    )

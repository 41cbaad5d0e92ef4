"""Calls AITER's attention functions: frozen descriptions of a call in, the loader's C ABI out.

Addresses are of GPU memory, strides count elements, sizes are in tokens; the last dimension is contiguous.
LSE is fp32, a natural logarithm, a row of tokens for each head: other than rocade's, the caller converts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rocade_kernels.aiter.names import VariantKey


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


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library. It stays loaded as long as the process."""

    path: Path
    key: VariantKey
    version: str
    handle: int


def load(path: Path, key: VariantKey, version: str) -> Library:
    """Load a library, once a process.

    Args:
        path: as `search.find` gave it.
        key: what it was built for.
        version: of the AITER that built it.

    Raises:
        LibraryError: it is damaged, does not export the function, or does not load.
        UnknownVersionError: `version` is not listed in `versions`.
        BuildError: there is no native library of rocade to load it with.
    """
    raise NotImplementedError


def mha_fwd(library: Library, call: Dense, stream: int) -> None:
    """Dense attention, queued on a stream (the driver's handle).

    Raises:
        NoKernelError: the library has none for this call.
        CallError: AITER threw, or a number does not fit its 32-bit field.
        ValueError: the call is not what the library was built for.
    """
    raise NotImplementedError


def mha_varlen_fwd(library: Library, call: Ragged, stream: int) -> None:
    """Ragged attention; errors as `mha_fwd`."""
    raise NotImplementedError


def mha_batch_prefill(library: Library, call: Paged, stream: int) -> None:
    """Attention on pages; errors as `mha_fwd`."""
    raise NotImplementedError


def fmha_v3_fwd(library: Library, call: Dense, stream: int) -> None:
    """Dense attention by hand-written kernels, bf16 only; errors as `mha_fwd`."""
    raise NotImplementedError


def fmha_v3_varlen_fwd(library: Library, call: Ragged, stream: int) -> None:
    """Ragged attention by hand-written kernels, bf16 only; errors as `mha_fwd`."""
    raise NotImplementedError

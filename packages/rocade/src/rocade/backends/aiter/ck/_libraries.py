"""Which of AITER's libraries serves a request: its family, its variant, and the one that is there.

A run may ask for the LSE or not, and a plan does not know which. A library with LSE serves both, so a plan
takes what is there and has only that one built.
"""

from __future__ import annotations

import functools
from typing import TypedDict

import torch

from arch_caps import DType, Op, Request
from arch_caps.rows.aiter_ck import NATIVE_PAGE
from rocade.backends.aiter import bootstrap
from rocade.backends.aiter._mask_need import mask_of
from rocade_kernels import _settings
from rocade_kernels.aiter import calls, versions
from rocade_kernels.aiter.names import Family, VariantKey

_SINGLE = frozenset((Op.SINGLE_PREFILL, Op.SINGLE_DECODE))
_PAGED = frozenset((Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE))
_DTYPES = {DType.FP16: "fp16", DType.BF16: "bf16"}


def version() -> str:
    """The AITER version whose names and layouts are used.

    Raises:
        UnknownVersionError: none is installed or named, or it is not a known one.
    """
    return _version(_settings.AITER_VERSION.read())


@functools.lru_cache(maxsize=8)
def _version(override: str) -> str:
    """By the override, which may change; the installed version does not."""
    return versions.version_in_use()


def family_of(request: Request) -> Family:
    """The kind of library, if pages of the one size that it reads in place are read so."""
    if request.op in _SINGLE:
        return Family.MHA_VARLEN_FWD if request.logits_soft_cap else Family.MHA_FWD
    return Family.MHA_BATCH_PREFILL if is_paged_in_place(request) else Family.MHA_VARLEN_FWD


def is_paged_in_place(request: Request) -> bool:
    """Whether this AITER may read the request's page pool without a gather; a probe has the last word."""
    if request.op not in _PAGED or request.page_size != NATIVE_PAGE:
        return False
    known = versions.require(version())
    return known.prefill is not None and (not known.page_sizes or request.page_size in known.page_sizes)


def key_of(request: Request, family: Family, *, lse: bool) -> VariantKey:
    """The variant that a request needs."""
    return VariantKey(
        family=family,
        dtype=_DTYPES[request.q_dtype],
        needs_mask=mask_of(request).needed,
        has_lse=lse,
        has_logits_cap=request.logits_soft_cap > 0,
    )


class Sizes(TypedDict):
    """What a library is tried with on this machine."""

    head_dim: int
    page_size: int  # 0 for functions that know no pages


def sizes_of(request: Request, family: Family) -> Sizes:
    """Those of a request."""
    paged = family is Family.MHA_BATCH_PREFILL
    return Sizes(head_dim=request.head_dim_qk, page_size=request.page_size if paged else 0)


class Libraries:
    """Those of one plan."""

    __slots__ = ("_device", "_family", "_loaded", "_plain_has_lse", "_request")

    def __init__(self, request: Request, family: Family, device: torch.device) -> None:
        """Settle on the one for runs without LSE; it is built now if there is none.

        Raises:
            BootstrapError: it could not be built, or is wrong on this machine.
        """
        self._request, self._family, self._device = request, family, device
        self._loaded: dict[bool, calls.Library] = {}
        plain = key_of(request, family, lse=False)
        self._plain_has_lse = bootstrap.found(plain, device, **sizes_of(request, family)) is None
        self.of(lse=self._plain_has_lse)

    def of(self, *, lse: bool) -> calls.Library:
        """The library for a run with LSE, or without; one without may be given one that computes it.

        Raises:
            BootstrapError: there is none with LSE, and it could not be built.
        """
        lse = lse or self._plain_has_lse
        library = self._loaded.get(lse)
        if library is None:
            key = key_of(self._request, self._family, lse=lse)
            path = bootstrap.ensure(key, self._device, **sizes_of(self._request, self._family))
            library = self._loaded[lse] = calls.load(path, key, version())
        return library

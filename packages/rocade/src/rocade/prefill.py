"""Prefill attention: one request, or a batch over paged or ragged keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocade import _refused
from rocade._prefill_paged import BatchPrefillWithPagedKVCacheWrapper
from rocade._prefill_ragged import BatchPrefillWithRaggedKVCacheWrapper
from rocade._prefill_single import single_prefill_with_kv_cache, single_prefill_with_kv_cache_return_lse

if not TYPE_CHECKING:
    __getattr__ = _refused.attributes(__name__)

__all__ = [
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "single_prefill_with_kv_cache",
    "single_prefill_with_kv_cache_return_lse",
]

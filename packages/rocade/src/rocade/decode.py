"""Decode attention: the newest token of one request, or of a batch over a paged KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocade import _refused
from rocade._decode_batch import BatchDecodeWithPagedKVCacheWrapper
from rocade._decode_graph import CUDAGraphBatchDecodeWithPagedKVCacheWrapper, fast_decode_plan
from rocade._decode_single import single_decode_with_kv_cache

if not TYPE_CHECKING:
    __getattr__ = _refused.attributes(__name__)

__all__ = [
    "BatchDecodeWithPagedKVCacheWrapper",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
    "fast_decode_plan",
    "single_decode_with_kv_cache",
]

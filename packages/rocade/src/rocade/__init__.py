"""rocade: LLM attention with FlashInfer's API. Prefill, decode, and cascade over paged and ragged KV caches.

`import rocade as flashinfer` works for programs that use these operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocade import _refused
from rocade import flashinfer as flashinfer
from rocade._emulate import emulate
from rocade._emulation import Emulation
from rocade._errors import ArchCapabilityError, NotPlannedError, RefusedError
from rocade._explain import Explanation, explain
from rocade._version import __version__
from rocade.cascade import (
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper,
    BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
    MultiLevelCascadeAttentionWrapper,
    merge_state,
    merge_state_in_place,
    merge_states,
)
from rocade.decode import (
    BatchDecodeWithPagedKVCacheWrapper,
    CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
    fast_decode_plan,
    single_decode_with_kv_cache,
)
from rocade.page import append_paged_kv_cache, get_batch_indices_positions, get_seq_lens
from rocade.prefill import (
    BatchPrefillWithPagedKVCacheWrapper,
    BatchPrefillWithRaggedKVCacheWrapper,
    single_prefill_with_kv_cache,
    single_prefill_with_kv_cache_return_lse,
)
from rocade.prefix import CascadeLevels, find_shared_prefixes
from rocade.quantization import packbits, segment_packbits

if not TYPE_CHECKING:
    __getattr__ = _refused.attributes(__name__)

__all__ = [
    "ArchCapabilityError",
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
    "CascadeLevels",
    "Emulation",
    "Explanation",
    "MultiLevelCascadeAttentionWrapper",
    "NotPlannedError",
    "RefusedError",
    "__version__",
    "append_paged_kv_cache",
    "emulate",
    "explain",
    "fast_decode_plan",
    "find_shared_prefixes",
    "get_batch_indices_positions",
    "get_seq_lens",
    "merge_state",
    "merge_state_in_place",
    "merge_states",
    "packbits",
    "segment_packbits",
    "single_decode_with_kv_cache",
    "single_prefill_with_kv_cache",
    "single_prefill_with_kv_cache_return_lse",
]

"""Cascade attention: keys that several requests share are read once. And merging of attention states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocade import _refused
from rocade._merge import (
    attention_sum,
    merge_state,
    merge_state_in_place,
    merge_states,
    variable_length_attention_sum,
    variable_length_merge_states,
)
from rocade._multi_level import MultiLevelCascadeAttentionWrapper
from rocade._shared_prefix import (
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper,
    BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
)

if not TYPE_CHECKING:
    __getattr__ = _refused.attributes(__name__)

__all__ = [
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
    "MultiLevelCascadeAttentionWrapper",
    "attention_sum",
    "merge_state",
    "merge_state_in_place",
    "merge_states",
    "variable_length_attention_sum",
    "variable_length_merge_states",
]

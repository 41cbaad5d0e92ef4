"""Cascade attention, and merging of attention states."""

from __future__ import annotations

from rocade._merge import (
    attention_sum,
    merge_state,
    merge_state_in_place,
    merge_states,
    variable_length_attention_sum,
    variable_length_merge_states,
)

__all__ = [
    "attention_sum",
    "merge_state",
    "merge_state_in_place",
    "merge_states",
    "variable_length_attention_sum",
    "variable_length_merge_states",
]

"""`AttentionOnly`: the other half of `Backend` for one that computes attention and nothing else.

The table has no row of such a backend for these operations, so dispatch never calls them.
"""

from __future__ import annotations

from typing import Any, NoReturn


class AttentionOnly:
    """Base of a backend without merges, sums and appending."""

    name: str

    def merge_states(self, *_: Any) -> NoReturn:
        """Not served."""
        self._refuse("merge_states")

    def merge_state(self, *_: Any) -> NoReturn:
        """Not served."""
        self._refuse("merge_state")

    def merge_state_in_place(self, *_: Any) -> NoReturn:
        """Not served."""
        self._refuse("merge_state_in_place")

    def variable_length_merge_states(self, *_: Any) -> NoReturn:
        """Not served."""
        self._refuse("variable_length_merge_states")

    def attention_sum(self, *_: Any) -> NoReturn:
        """Not served."""
        self._refuse("attention_sum")

    def variable_length_attention_sum(self, *_: Any) -> NoReturn:
        """Not served."""
        self._refuse("variable_length_attention_sum")

    def append_paged_kv_cache(self, *_: Any) -> NoReturn:
        """Not served."""
        self._refuse("append_paged_kv_cache")

    def _refuse(self, op: str) -> NoReturn:
        raise NotImplementedError(f"backend {self.name!r} has no {op}, and the table says so")

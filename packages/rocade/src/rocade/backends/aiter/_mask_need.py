"""Which mask AITER is asked for: the one place, so that a library's name and its arguments agree.

AITER compiles masked and unmasked attention into different libraries, and an unmasked one ignores the window
without a word. Its own sources decide by "causal or a window", after dropping what hides nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from arch_caps import MaskKind, Op, Request

_ONE_REQUEST = frozenset((Op.SINGLE_PREFILL, Op.SINGLE_DECODE))
_UNLIMITED = -1


class AiterMask(NamedTuple):
    """The mask of a request in AITER's words."""

    causal: bool  # truly: no key right of the diagonal is seen
    left: int  # tokens visible left of the diagonal, which ends at the last query and last key; -1: all

    @property
    def needed(self) -> bool:
        """Whether the library must be one with a mask (`_mask` in its name, not `_nmask`)."""
        return self.causal or self.left >= 0


def mask_of(request: Request) -> AiterMask:
    """The mask of a request without a custom one, and without what hides no key.

    The window of a single request that reaches all its keys is none. In a batch, whose lengths
    change from plan to plan, it stays. One query a request sees all keys, causal or not.
    """
    causal = request.mask is MaskKind.CAUSAL and request.max_qo_len != 1
    left = request.window_left
    if request.op in _ONE_REQUEST and request.max_kv_len is not None and left >= request.max_kv_len:
        left = _UNLIMITED
    return AiterMask(causal, left)

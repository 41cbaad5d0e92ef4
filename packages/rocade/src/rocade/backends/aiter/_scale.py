"""A scale of the logits that AITER's kernels can take: above 0.

They look for the largest product first and scale it then, and hide keys by products of -inf. Times 0 that is
NaN, and times a negative number it is +inf.
"""

from __future__ import annotations

import torch

from rocade._errors import invalid

_LEAST = 2.0**-120  # times log2(e) it is still a normal number, with room


def positive_scale(q: torch.Tensor, scale: float) -> tuple[torch.Tensor, float]:
    """`q` and a positive scale that give the same logits; `q` is a copy where the sign or a 0 moves into it.

    Raises:
        ValueError: the scale is so small that it is 0 to the kernels.
    """
    if scale >= _LEAST:
        return q, scale
    if scale == 0.0:
        return q * 0.0, 1.0
    if scale <= -_LEAST:
        return -q, -scale
    raise invalid("sm_scale", scale, f"0, or a number of magnitude {_LEAST:.3g} or more")

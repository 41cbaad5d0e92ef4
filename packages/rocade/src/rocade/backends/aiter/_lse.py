"""AITER's log-sum-exp is a natural logarithm, `[Hq, T]`; ours is a log2, `[T, Hq]`.

Letters: T query rows, Hq query heads.
"""

from __future__ import annotations

import math

import torch

LOG2_E = 1.0 / math.log(2.0)


def natural_for(out: torch.Tensor) -> torch.Tensor:
    """New fp32 memory `[Hq, T]` for the natural logarithms that belong to a result `[T, Hq, D]`."""
    rows, heads, _ = out.shape
    return out.new_empty((heads, rows), dtype=torch.float32)


def store_log2(natural: torch.Tensor, lse: torch.Tensor) -> None:
    """Write natural logarithms `[Hq, T]` as log2 into `lse [T, Hq]` of any strides; infinities stay."""
    torch.mul(natural.t(), LOG2_E, out=lse)

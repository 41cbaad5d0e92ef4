"""Online softmax in base 2: one state per batch of row tiles, fed key chunk by key chunk.

Letters: b tiles, h KV heads, r rows (query rows times group heads), n keys, D head dim of V.
"""

from __future__ import annotations

import torch

NO_KEYS = float("-inf")


class OnlineSoftmax:
    """Running maximum, sum and weighted values of `[b, h, r]` rows, all fp32."""

    def __init__(self) -> None:
        self._top: torch.Tensor | None = None  # [b, h, r, 1], largest logit so far
        self._sum: torch.Tensor
        self._acc: torch.Tensor  # [b, h, r, D]

    def add(self, logits: torch.Tensor, v: torch.Tensor) -> None:
        """Take in `logits [b, h, r, n]` (log2 domain, overwritten) and `v [b, n, h, D]`."""
        top = logits.amax(-1, keepdim=True)
        if self._top is not None:
            top = torch.maximum(top, self._top)
        base = top.masked_fill(top == NO_KEYS, 0.0)  # -inf minus -inf would be NaN
        weights = logits.sub_(base).exp2_()
        total = weights.sum(-1, keepdim=True)
        if self._top is None:
            self._sum = total
            self._acc = weights.new_empty(*weights.shape[:-1], v.shape[-1])
        else:
            shrink = torch.exp2(self._top - base)
            self._sum = self._sum.mul_(shrink).add_(total)
            self._acc.mul_(shrink)
        first, self._top = self._top is None, top
        for acc, weight, value in zip(self._acc, weights, v.transpose(1, 2), strict=True):
            if first:
                torch.bmm(weight, value, out=acc)
            else:
                acc.baddbmm_(weight, value)

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalised `out [b, h, r, D]` and log2-sum-exp `[b, h, r]`; (0, -inf) for rows that saw no key."""
        assert self._top is not None
        base = self._top.masked_fill(self._top == NO_KEYS, 0.0)
        out = self._acc.div_(self._sum.masked_fill(self._sum == 0, 1.0))
        return out, (base + self._sum.log2()).squeeze(-1)

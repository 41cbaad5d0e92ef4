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

    def add(self, logits: torch.Tensor, v: torch.Tensor, *, some_hidden: bool) -> None:
        """Take in `logits [b, h, r, n]` (log2 domain, overwritten) and `v [b, n, h, D]`.

        `some_hidden`: a key may be hidden (-inf) from one row and not from another. What is not finite in its
        value then makes NaN of the rows that see it, and of no other: a weight of 0 would not keep it out.
        """
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
        v, bad = _without_bad(v) if some_hidden else (v, None)
        for acc, weight, value in zip(self._acc, weights, v.transpose(1, 2), strict=True):
            if first:
                torch.bmm(weight, value, out=acc)
            else:
                acc.add_(torch.bmm(weight, value))  # baddbmm rounds each term to the last place of `acc`
        if bad is not None:
            touched = (weights > 0).float() @ bad.transpose(1, 2).float()
            self._acc.masked_fill_(touched > 0, float("nan"))

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalised `out [b, h, r, D]` and log2-sum-exp `[b, h, r]`; (0, -inf) for rows that saw no key."""
        assert self._top is not None
        base = self._top.masked_fill(self._top == NO_KEYS, 0.0)
        out = self._acc.div_(self._sum.masked_fill(self._sum == 0, 1.0))
        return out, (base + self._sum.log2()).squeeze(-1)


def _without_bad(v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`v` with 0 for what is not finite, and where that is: None for nowhere, which only a CPU asks."""
    bad = ~v.isfinite()
    if v.is_cpu and not bool(bad.any()):
        return v, None
    return v.masked_fill(bad, 0.0), bad

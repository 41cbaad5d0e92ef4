"""Online softmax in base 2: one state per batch of row tiles, fed key chunk by key chunk.

A product that sums n equal terms one by one in fp32 is off by up to n / 4 units in the last place. So
products run over `_TERMS` keys at a time and add up in fp64, as the weights' sum does.

Letters: b tiles, h KV heads, r rows (query rows times group heads), n keys, D head dim of V.
"""

from __future__ import annotations

import torch

NO_KEYS = float("-inf")
_TERMS = 32  # keys whose weighted values are summed in fp32


class OnlineSoftmax:
    """Running maximum (fp32), sum and weighted values (fp64) of `[b, h, r]` rows."""

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
        total = weights.sum(-1, keepdim=True, dtype=torch.float64)
        if self._top is None:
            self._sum = total
            self._acc = total.new_zeros(*weights.shape[:-1], v.shape[-1])
        else:
            shrink = torch.exp2(self._top - base)
            self._sum = self._sum.mul_(shrink).add_(total)
            self._acc.mul_(shrink)
        self._top = top
        v, bad = _without_bad(v) if some_hidden else (v, None)
        for acc, weight, value in zip(self._acc, weights, v.transpose(1, 2), strict=True):
            for keys in range(0, weight.shape[-1], _TERMS):
                acc.add_(torch.bmm(weight[..., keys : keys + _TERMS], value[:, keys : keys + _TERMS]))
        if bad is not None:
            touched = (weights > 0).float() @ bad.transpose(1, 2).float()
            self._acc.masked_fill_(touched > 0, float("nan"))

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalised `out [b, h, r, D]` and log2-sum-exp `[b, h, r]`, fp32; (0, -inf) if no key was seen."""
        assert self._top is not None
        base = self._top.masked_fill(self._top == NO_KEYS, 0.0)
        out = self._acc.div_(self._sum.masked_fill(self._sum == 0, 1.0))
        return out.float(), (base + self._sum.log2()).squeeze(-1).float()


def _without_bad(v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`v` with 0 for what is not finite, and where that is: None for nowhere, which only a CPU asks."""
    bad = ~v.isfinite()
    if v.is_cpu and not bool(bad.any()):
        return v, None
    return v.masked_fill(bad, 0.0), bad

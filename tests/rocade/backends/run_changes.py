"""What may change from one run of a paged wrapper to the next, right or wrong: every kind of argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def half(*shape: int) -> torch.Tensor:
    """Random numbers in fp16."""
    return torch.randn(shape, dtype=torch.float32).half()


def _strided(t: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros(t.shape[0], t.shape[1] + 1, *t.shape[2:], dtype=t.dtype)
    return wide[:, 1:].copy_(t)


def _shifted(t: torch.Tensor, elements: int) -> torch.Tensor:
    return torch.zeros(t.numel() + elements, dtype=t.dtype)[elements:].view(t.shape)


# What a run may be given after another one: the changed arguments, from q, cache, and the results.
Arguments = tuple[Any, Any, dict[str, Any]]
CHANGES: dict[str, Callable[[torch.Tensor, torch.Tensor, dict[str, Any]], Arguments]] = {
    "other addresses": lambda q, c, r: (q.clone(), c.clone(), r),
    "rows of q further apart": lambda q, c, r: (_strided(q), c, r),
    "more rows": lambda q, c, r: (half(5, *q.shape[1:]), c, r),
    "fewer rows": lambda q, c, r: (q[:3], c, r),
    "other heads": lambda q, c, r: (half(4, 8, q.shape[2]), c, r),
    "q in bf16": lambda q, c, r: (q.bfloat16(), c, r),
    "q on another device": lambda q, c, r: (q.to("meta"), c, r),
    "q not at a multiple of 16 bytes": lambda q, c, r: (_shifted(q, 1), c, r),
    "q is no tensor": lambda q, c, r: (q.tolist(), c, r),
    "no q": lambda q, c, r: (None, c, r),
    "q wants a gradient": lambda q, c, r: (torch.zeros(q.shape).half().requires_grad_(), c, r),
    "q lazily negated": lambda q, c, r: (torch._neg_view(q), c, r),
    "q transposed": lambda q, c, r: (q.transpose(1, 2).contiguous().transpose(1, 2), c, r),
    "fewer pages than are used": lambda q, c, r: (q, c[:-1], r),
    "more pages": lambda q, c, r: (q, half(c.shape[0] + 3, *c.shape[1:]), r),
    "no pages": lambda q, c, r: (q, c[:0], r),
    "cache in bf16": lambda q, c, r: (q, c.bfloat16(), r),
    "cache in fp32": lambda q, c, r: (q, c.float(), r),
    "pages further apart": lambda q, c, r: (q, half(2 * c.shape[0], *c.shape[1:])[::2], r),
    "two tensors": lambda q, c, r: (q, (c[:, 0].contiguous(), c[:, 1].contiguous()), r),
    "views of one tensor": lambda q, c, r: (q, (c[:, 0], c[:, 1]), r),
    "K and V are one": lambda q, c, r: (q, (c[:, 0], c[:, 0]), r),
    "cache not at a multiple of 16 bytes": lambda q, c, r: (q, _shifted(c, 4), r),
    "cache lazily negated": lambda q, c, r: (q, torch._neg_view(c), r),
    "cache is no tensor": lambda q, c, r: (q, "cache", r),
    "three caches": lambda q, c, r: (q, (c, c, c), r),
    "out in bf16": lambda q, c, r: (q, c, {**r, "out": r["out"].bfloat16()}),
    "out too short": lambda q, c, r: (q, c, {**r, "out": r["out"][:3]}),
    "out is q": lambda q, c, r: (q, c, {**r, "out": q}),
    "out in the cache": lambda q, c, r: (q, c, {**r, "out": c.view(-1)[: q.numel()].view(q.shape)}),
    "out beside q": lambda q, c, r: _beside(q, c, r),
    "out with rows that share memory": lambda q, c, r: (
        q,
        c,
        {**r, "out": half(1, *q.shape[1:]).expand(q.shape)},
    ),
    "out lazily negated": lambda q, c, r: (q, c, {**r, "out": torch._neg_view(r["out"])}),
    "out not at a multiple of 16 bytes": lambda q, c, r: (q, c, {**r, "out": _shifted(r["out"], 1)}),
    "out on another device": lambda q, c, r: (q, c, {**r, "out": r["out"].to("meta")}),
    "out is no tensor": lambda q, c, r: (q, c, {**r, "out": 3}),
    "no lse": lambda q, c, r: (q, c, {"out": r["out"]}),
    "lse in fp16": lambda q, c, r: (q, c, {**r, "lse": r["lse"].half()}),
    "lse transposed": lambda q, c, r: (q, c, {**r, "lse": torch.empty(r["lse"].T.shape).T}),
    "lse in out": lambda q, c, r: (q, c, {**r, "lse": r["out"].view(torch.float32).view(-1)[:16].view(4, 4)}),
    "a state": lambda q, c, r: (q, c, {**r, "partial_state": (torch.zeros_like(q), torch.zeros(4, 4))}),
    "scale 0": lambda q, c, r: (q, c, {**r, "q_scale": 0.0}),
    "scale beyond fp32": lambda q, c, r: (q, c, {**r, "q_scale": 3e38, "k_scale": 3e38}),
    "a scale that is no number": lambda q, c, r: (q, c, {**r, "q_scale": float("nan")}),
    "a scale for each head": lambda q, c, r: (q, c, {**r, "k_scale": torch.ones(4)}),
    "a scale in a tensor": lambda q, c, r: (q, c, {**r, "v_scale": torch.tensor([0.5])}),
    "another window": lambda q, c, r: (q, c, {**r, "window_left": 3}),
    "sinks": lambda q, c, r: (q, c, {**r, "sinks": torch.zeros(4)}),
}


def _beside(q: torch.Tensor, c: torch.Tensor, r: dict[str, Any]) -> Arguments:
    """Q and out take turns in the rows of one buffer: their extents meet, their elements do not."""
    both = half(q.shape[0], 2 * q.shape[1], q.shape[2])
    return both[:, : q.shape[1]], c, {**r, "out": both[:, q.shape[1] :]}

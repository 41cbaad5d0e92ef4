"""The fp64 reference for attention, written from the contract alone. It shares no code with any backend.

Plain torch in float64, one request at a time, the whole logit matrix in memory. Nothing here is fast.
Letters: n query rows, m keys, Hq and Hkv heads, Dk and Dv head dims, N pages of S tokens, B requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

LOG2_E = 1.0 / math.log(2.0)
NEG_INF = float("-inf")


@dataclass(frozen=True, slots=True)
class Rules:
    """What shapes the logits. `scale` holds sm_scale times q_scale times k_scale."""

    scale: float
    causal: bool = False
    window_left: int = -1
    soft_cap: float = 0.0
    pos_encoding: str = "NONE"
    rope_scale: float = 1.0
    rope_theta: float = 1e4
    v_scale: float = 1.0


class Reference(NamedTuple):
    """The answer, and the magnitudes that a rounding error of it is proportional to. All fp64."""

    out: torch.Tensor  # [n, Hq, Dv]
    lse: torch.Tensor  # [n, Hq], log2
    out_mass: torch.Tensor  # [n, Hq, Dv], sum over keys of p |v|
    out_rms: torch.Tensor  # [n, Hq, Dv], square root of the sum over keys of (p v)^2
    logit_mass: torch.Tensor  # [n, Hq], largest scale * sum |q| |k| + |bias| of a visible key


def alibi_slopes(num_heads: int) -> list[float]:
    """One slope a query head: a geometric series over the largest power of two, then its odd half-steps."""
    n = 2 ** math.floor(math.log2(num_heads))
    return [
        2.0 ** (-8.0 * (h + 1) / n) if h < n else 2.0 ** (-4.0 * (2 * (h - n) + 1) / n)
        for h in range(num_heads)
    ]


def rope(x: torch.Tensor, positions: Sequence[int], rope_scale: float, rope_theta: float) -> torch.Tensor:
    """Rotate `x [rows, H, D]`: element i of the first half pairs with element i of the second half."""
    half = x.shape[-1] // 2
    freq = [rope_theta ** (-2.0 * i / x.shape[-1]) / rope_scale for i in range(half)]
    angle = torch.tensor([[p * f for f in freq] for p in positions], dtype=torch.float64)
    cos, sin = angle.cos().reshape(-1, 1, half), angle.sin().reshape(-1, 1, half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def visible_keys(num_rows: int, num_keys: int, rules: Rules, custom: torch.Tensor | None) -> torch.Tensor:
    """Bool `[n, m]`. The last row stands on the last key; a custom mask replaces causal, the window stays."""
    query_pos = torch.arange(num_rows).reshape(-1, 1) + num_keys - num_rows
    key_pos = torch.arange(num_keys).reshape(1, -1)
    seen = torch.ones(num_rows, num_keys, dtype=torch.bool)
    if custom is not None:
        seen = seen & custom
    elif rules.causal:
        seen = seen & (key_pos <= query_pos)
    if rules.window_left >= 0:
        seen = seen & (key_pos >= query_pos - rules.window_left)
    return seen


def _logits(q: torch.Tensor, k: torch.Tensor, rules: Rules) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and their magnitudes, both `[Hq, n, m]`; `q [n, Hq, Dk]` and `k [m, Hq, Dk]` are fp64."""
    n, num_heads, m = q.shape[0], q.shape[1], k.shape[0]
    query_pos = torch.arange(n, dtype=torch.float64) + (m - n)
    key_pos = torch.arange(m, dtype=torch.float64)
    if rules.pos_encoding == "ROPE_LLAMA":
        q = rope(q, query_pos.tolist(), rules.rope_scale, rules.rope_theta)
        k = rope(k, key_pos.tolist(), rules.rope_scale, rules.rope_theta)
    q_h, k_h = q.transpose(0, 1), k.transpose(0, 1)  # [Hq, n, Dk], [Hq, m, Dk]
    logits = rules.scale * (q_h @ k_h.transpose(1, 2))
    mass = abs(rules.scale) * (q_h.abs() @ k_h.abs().transpose(1, 2))
    if rules.pos_encoding == "ALIBI":
        slopes = torch.tensor(alibi_slopes(num_heads), dtype=torch.float64).reshape(-1, 1, 1)
        bias = slopes * (key_pos.reshape(1, 1, -1) - query_pos.reshape(1, -1, 1))
        logits, mass = logits + bias, mass + bias.abs()
    if rules.soft_cap > 0:
        logits = rules.soft_cap * torch.tanh(logits / rules.soft_cap)
    return logits, mass


def _softmax2(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and log2-sum-exp over the last dimension; no finite logit gives zero weights and -inf."""
    if logits.shape[-1] == 0:
        return torch.zeros_like(logits), torch.full(logits.shape[:-1], NEG_INF, dtype=torch.float64)
    top = logits.amax(-1, keepdim=True)
    top = torch.where(top == NEG_INF, torch.zeros_like(top), top)
    weights = (logits - top).exp()
    total = weights.sum(-1, keepdim=True)
    lse = (top + total.log()).squeeze(-1) * LOG2_E
    return torch.where(total > 0, weights / total, torch.zeros_like(weights)), lse


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rules: Rules, custom: torch.Tensor | None = None
) -> Reference:
    """Attention of one request: `q [n, Hq, Dk]`, `k [m, Hkv, Dk]`, `v [m, Hkv, Dv]`, `custom` `[n, m]`."""
    group = q.shape[1] // k.shape[1]
    q64 = q.to(torch.float64)
    k64 = k.to(torch.float64).repeat_interleave(group, dim=1)  # query head h reads KV head h // group
    v64 = v.to(torch.float64).repeat_interleave(group, dim=1) * rules.v_scale
    logits, mass = _logits(q64, k64, rules)
    seen = visible_keys(q.shape[0], k.shape[0], rules, custom)
    logits = logits.masked_fill(~seen, NEG_INF)
    weights, lse = _softmax2(logits)
    v_h = v64.transpose(0, 1)  # [Hq, m, Dv]
    mass = mass.masked_fill(~seen, 0.0)
    mass = mass.amax(-1) if mass.shape[-1] else torch.zeros_like(lse)
    return Reference(
        out=(weights @ v_h).transpose(0, 1),
        lse=lse.transpose(0, 1),
        out_mass=(weights @ v_h.abs()).transpose(0, 1),
        out_rms=(weights.square() @ v_h.square()).sqrt().transpose(0, 1),
        logit_mass=mass.transpose(0, 1),
    )


def gather_pages(
    cache: torch.Tensor, indptr: Sequence[int], indices: Sequence[int], last_page_len: Sequence[int], b: int
) -> torch.Tensor:
    """Keys (or values) of request `b` as `[m, Hkv, D]`, token by token, of a cache `[N, S, Hkv, D]`."""
    page_size = cache.shape[1]
    pages = [indices[j] for j in range(indptr[b], indptr[b + 1])]
    num_tokens = (len(pages) - 1) * page_size + last_page_len[b] if pages else 0
    rows = [cache[pages[t // page_size], t % page_size] for t in range(num_tokens)]
    return torch.stack(rows) if rows else cache.new_empty(0, *cache.shape[2:])


def unpack_mask(packed: Sequence[int], first_byte: int, num_rows: int, num_keys: int) -> torch.Tensor:
    """Bool `[n, m]` of one request: bit b of its byte k is flat element 8 k + b."""
    flat = [bool(packed[first_byte + e // 8] >> (e % 8) & 1) for e in range(num_rows * num_keys)]
    return torch.tensor(flat, dtype=torch.bool).reshape(num_rows, num_keys)


def batch(
    q: torch.Tensor,
    qo_indptr: Sequence[int],
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    rules: Rules,
    masks: Sequence[torch.Tensor] | None = None,
) -> Reference:
    """Attention of B requests: b owns rows `qo_indptr[b]:qo_indptr[b + 1]`, `keys[b]` and `values[b]`."""
    parts = [
        attend(q[qo_indptr[b] : qo_indptr[b + 1]], keys[b], values[b], rules, masks[b] if masks else None)
        for b in range(len(keys))
    ]
    if not parts:
        raise ValueError("the oracle needs at least one request; an empty batch has an empty answer")
    return Reference(*(torch.cat(column) for column in zip(*parts, strict=True)))


class CascadeLevel(NamedTuple):
    """One level: request b serves rows `qo_indptr[b]:qo_indptr[b + 1]` with its keys and values."""

    qo_indptr: Sequence[int]
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]

    def serving(self, row: int) -> int:
        """The request that row belongs to."""
        return next(b for b in range(len(self.keys)) if self.qo_indptr[b] <= row < self.qo_indptr[b + 1])


def cascade(q: torch.Tensor, levels: Sequence[CascadeLevel], rules: Rules) -> Reference:
    """Cascade attention by definition: each last-level request sees its levels' keys as one sequence."""
    last = levels[-1]
    keys, values = [], []
    for b in range(len(last.keys)):
        row = last.qo_indptr[b]
        empty = row == last.qo_indptr[b + 1]
        chain = [(level, level.serving(row)) for level in levels] if not empty else [(last, b)]
        keys.append(torch.cat([level.keys[r] for level, r in chain]))
        values.append(torch.cat([level.values[r] for level, r in chain]))
    return batch(q, last.qo_indptr, keys, values, rules)

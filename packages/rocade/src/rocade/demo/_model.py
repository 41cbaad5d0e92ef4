"""A Llama decoder in plain torch and fp32. Attention and the KV cache are the caller's: see `_attention`.

Letters: T token rows of any mix of requests, C hidden and F feed-forward size, Hq and Hkv heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import linear, rms_norm, silu

from rocade.demo._gguf import ModelConfig

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(layer, q `[T, Hq, D]`, new k, new v `[T, Hkv, D]`) -> output `[T, Hq, D]`; q and k carry RoPE already."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer; matrices that read the same input are joined."""

    attn_norm: torch.Tensor  # [C]
    qkv: torch.Tensor  # [(Hq + 2 Hkv) D, C]
    attn_out: torch.Tensor  # [C, Hq D]
    ffn_norm: torch.Tensor  # [C]
    gate_up: torch.Tensor  # [2 F, C]
    down: torch.Tensor  # [C, F]


class Llama:
    """Token rows in, logits out. Rows may belong to many requests; only `attend` knows which."""

    def __init__(self, config: ModelConfig, weights: dict[str, torch.Tensor]) -> None:
        self.config = config
        self.embedding = weights["token_embd.weight"]  # [vocabulary, C]
        self.output_norm = weights["output_norm.weight"]
        self.head = weights.get("output.weight", self.embedding)  # tied unless the file has its own
        self.layers = [_layer(weights, i) for i in range(config.num_layers)]
        exponent = torch.arange(0, config.head_dim, 2) / config.head_dim
        self._frequency = config.rope_theta**-exponent  # radians a token, [D / 2]

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend, rows: torch.Tensor
    ) -> torch.Tensor:
        """Logits of some rows.

        Args:
            tokens: int64 `[T]`.
            positions: int64 `[T]`, each token's place in its own request, from 0.
            attend: called once a layer, in order.
            rows: int64, the rows whose logits are wanted; the others only fill the cache.

        Returns:
            fp32 `[len(rows), vocabulary]`.
        """
        cos, sin = self._rotation(positions)
        x = self.embedding[tokens]
        for i, layer in enumerate(self.layers):
            q, k, v = self._qkv(layer, x)
            out = attend(i, _rotate(q, cos, sin), _rotate(k, cos, sin), v)
            x = x + linear(out.reshape(len(x), -1), layer.attn_out)
            x = x + self._feed_forward(layer, x)
        return linear(self._norm(x[rows], self.output_norm), self.head)

    def _qkv(self, layer: Layer, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        c = self.config
        heads = linear(self._norm(x, layer.attn_norm), layer.qkv).view(len(x), -1, c.head_dim)
        q, k, v = torch.split(heads, [c.num_qo_heads, c.num_kv_heads, c.num_kv_heads], dim=1)
        return q, k, v

    def _feed_forward(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        gate, up = linear(self._norm(x, layer.ffn_norm), layer.gate_up).chunk(2, dim=-1)
        return linear(silu(gate) * up, layer.down)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, weight.shape, weight, self.config.norm_eps)

    def _rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine `[T, 1, D]` of each position's angles."""
        angle = positions[:, None].float() * self._frequency
        angle = torch.cat((angle, angle), dim=-1)[:, None]
        return angle.cos(), angle.sin()


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE on `[T, H, D]`: element i turns with element i + D/2."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def _layer(weights: dict[str, torch.Tensor], index: int) -> Layer:
    def get(name: str) -> torch.Tensor:
        return weights[f"blk.{index}.{name}.weight"]

    return Layer(
        attn_norm=get("attn_norm"),
        qkv=torch.cat((get("attn_q"), get("attn_k"), get("attn_v"))),
        attn_out=get("attn_output"),
        ffn_norm=get("ffn_norm"),
        gate_up=torch.cat((get("ffn_gate"), get("ffn_up"))),
        down=get("ffn_down"),
    )

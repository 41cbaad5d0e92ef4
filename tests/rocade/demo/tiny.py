"""A random Llama that runs in milliseconds, with a head shape like the demo model's (groups of three)."""

from __future__ import annotations

import torch

from rocade.demo._gguf import ModelConfig
from rocade.demo._model import Llama

VOCABULARY = 97

CONFIG = ModelConfig(
    num_layers=3,
    hidden_size=96,
    num_qo_heads=6,
    num_kv_heads=2,
    head_dim=16,
    context_length=512,
    rope_theta=1e4,
    norm_eps=1e-5,
)


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """Random fp32 weights under GGUF's names, scaled so that logits are a few units apart."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    c, ffn = CONFIG, 128
    made = {"token_embd.weight": torch.randn(VOCABULARY, c.hidden_size, generator=generator)}
    made["output_norm.weight"] = torch.ones(c.hidden_size)
    for i in range(c.num_layers):
        made |= {
            f"blk.{i}.attn_norm.weight": torch.ones(c.hidden_size),
            f"blk.{i}.attn_q.weight": matrix(c.num_qo_heads * c.head_dim, c.hidden_size) * 2,
            f"blk.{i}.attn_k.weight": matrix(c.num_kv_heads * c.head_dim, c.hidden_size) * 2,
            f"blk.{i}.attn_v.weight": matrix(c.num_kv_heads * c.head_dim, c.hidden_size),
            f"blk.{i}.attn_output.weight": matrix(c.hidden_size, c.num_qo_heads * c.head_dim),
            f"blk.{i}.ffn_norm.weight": torch.ones(c.hidden_size),
            f"blk.{i}.ffn_gate.weight": matrix(ffn, c.hidden_size),
            f"blk.{i}.ffn_up.weight": matrix(ffn, c.hidden_size),
            f"blk.{i}.ffn_down.weight": matrix(c.hidden_size, ffn),
        }
    return made


def model() -> Llama:
    """The model; equal each time."""
    return Llama(CONFIG, weights())


def requests(count: int, prompt: int, seed: int = 1) -> list[list[int]]:
    """Token ids of `count` requests that share `prompt` tokens and end in 1 to 9 of their own."""
    generator = torch.Generator().manual_seed(seed)

    def ids(n: int) -> list[int]:
        return torch.randint(VOCABULARY, (n,), generator=generator).tolist()

    shared = ids(prompt)
    return [[*shared, i, *ids(3 * i % 9)] for i in range(count)]

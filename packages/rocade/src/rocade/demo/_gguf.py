"""Reads a Llama model from a GGUF file: sizes, vocabulary, and weights dequantised to fp32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from rocade.demo._errors import DemoError

if TYPE_CHECKING:
    from gguf import GGUFReader

T = TypeVar("T")

CONTROL_TOKEN = 3  # GGUF's token type of markers such as <|im_end|>


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of a Llama model. Dimensions are in elements, `context_length` in tokens."""

    num_layers: int
    hidden_size: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    rope_theta: float
    norm_eps: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A byte-level BPE vocabulary: `tokens[id]`, merges best first, and the ids that text never yields."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    control: frozenset[int]
    end_of_turn: int


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A whole model; `weights` are keyed by GGUF's tensor names, matrices as `[out, in]`."""

    name: str
    config: ModelConfig
    vocabulary: Vocabulary
    weights: dict[str, torch.Tensor]


def read_model(path: Path) -> GgufModel:
    """Read `path`; weights become fp32 on the CPU.

    Raises:
        DemoError: no `gguf` package, an unreadable file, or a model that is not a Llama with this tokenizer.
    """
    try:
        from gguf import GGUFReader
    except ImportError as e:
        raise DemoError("the demo needs the package `gguf`: pip install 'gguf>=0.17'") from e
    try:
        reader = GGUFReader(path)
    except (OSError, ValueError) as e:
        raise DemoError(f"{path} is not a readable GGUF file: {e}") from e
    fields = _Fields(reader, path)
    config = _config(fields)
    return GgufModel(
        name=f"{fields.get('general.basename', str)} {fields.get('general.size_label', str)} ({path.name})",
        config=config,
        vocabulary=_vocabulary(fields),
        weights=_weights(reader, config),
    )


class _Fields:
    """Metadata by key and type, with errors that name the file."""

    def __init__(self, reader: GGUFReader, path: Path) -> None:
        self._fields = reader.fields
        self._path = path

    def get(self, key: str, kind: type[T]) -> T:
        """The value of `key`, which must be of `kind`."""
        value = self._fields[key].contents() if key in self._fields else None
        if not isinstance(value, kind):
            raise DemoError(f"{self._path}: field {key} is {value!r:.60}, expected {kind.__name__}")
        return value

    def require(self, key: str, expected: object) -> None:
        """Refuse a file whose `key` differs: its weights or tokens would be read wrongly."""
        value = self.get(key, type(expected))
        if value != expected:
            raise DemoError(f"{self._path}: {key} is {value!r}, the demo reads {expected!r} only")


def _config(fields: _Fields) -> ModelConfig:
    fields.require("general.architecture", "llama")
    hidden, heads = fields.get("llama.embedding_length", int), fields.get("llama.attention.head_count", int)
    fields.require("llama.rope.dimension_count", hidden // heads)
    return ModelConfig(
        num_layers=fields.get("llama.block_count", int),
        hidden_size=hidden,
        num_qo_heads=heads,
        num_kv_heads=fields.get("llama.attention.head_count_kv", int),
        head_dim=hidden // heads,
        context_length=fields.get("llama.context_length", int),
        rope_theta=fields.get("llama.rope.freq_base", float),
        norm_eps=fields.get("llama.attention.layer_norm_rms_epsilon", float),
    )


def _vocabulary(fields: _Fields) -> Vocabulary:
    fields.require("tokenizer.ggml.model", "gpt2")
    fields.require("tokenizer.ggml.pre", "smollm")
    kinds = fields.get("tokenizer.ggml.token_type", list)
    merges = [merge.split(" ", 1) for merge in fields.get("tokenizer.ggml.merges", list)]
    return Vocabulary(
        tokens=fields.get("tokenizer.ggml.tokens", list),
        merges=[(left, right) for left, right in merges],
        control=frozenset(i for i, kind in enumerate(kinds) if kind == CONTROL_TOKEN),
        end_of_turn=fields.get("tokenizer.ggml.eos_token_id", int),
    )


def _weights(reader: GGUFReader, config: ModelConfig) -> dict[str, torch.Tensor]:
    from gguf.quants import dequantize

    weights = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if tensor.name.endswith("attn_q.weight"):
            weight = _half_split_rows(weight, config.num_qo_heads)
        elif tensor.name.endswith("attn_k.weight"):
            weight = _half_split_rows(weight, config.num_kv_heads)
        weights[tensor.name] = weight
    return weights


def _half_split_rows(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """GGUF stores a Llama's Q and K rows so that RoPE turns neighbours (2i, 2i+1); put back (i, i + D/2)."""
    out_dim, in_dim = weight.shape
    pairs = weight.view(heads, out_dim // heads // 2, 2, in_dim)
    return pairs.transpose(1, 2).reshape(out_dim, in_dim)

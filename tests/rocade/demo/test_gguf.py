"""A GGUF file written here is read back; one that would be misread is refused."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from tests.rocade.demo.tiny import CONFIG, weights

from rocade.demo._errors import DemoError
from rocade.demo._gguf import read_model

TOKENS = ["<|im_end|>", "a", "b", "ab"]


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows as GGUF's converter orders them: i and i + D/2 of a head become neighbours."""
    half = weight.shape[0] // heads // 2
    order = [h * 2 * half + i + side * half for h in range(heads) for i in range(half) for side in (0, 1)]
    return weight[order]


def _add(writer: gguf.GGUFWriter, name: str, weight: torch.Tensor) -> None:
    """Add a matrix as the converter would: Q and K rows reordered, the embedding in 8 bits."""
    if name.endswith("attn_q.weight"):
        weight = interleaved(weight, CONFIG.num_qo_heads)
    elif name.endswith("attn_k.weight"):
        weight = interleaved(weight, CONFIG.num_kv_heads)
    if name == "token_embd.weight":
        eight_bits = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quantize(weight.numpy(), eight_bits), raw_dtype=eight_bits)
    else:
        writer.add_tensor(name, weight.numpy())


def write(path: Path, **changed: object) -> Path:
    """The tiny model as GGUF; `changed` replaces some of its metadata."""
    facts = {"architecture": "llama", "pre": "smollm", "rope": CONFIG.head_dim} | changed
    writer = gguf.GGUFWriter(path, facts["architecture"])
    writer.add_string("general.basename", "tiny")
    writer.add_size_label("1K")
    writer.add_block_count(CONFIG.num_layers)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_head_count(CONFIG.num_qo_heads)
    writer.add_head_count_kv(CONFIG.num_kv_heads)
    writer.add_context_length(CONFIG.context_length)
    writer.add_rope_freq_base(CONFIG.rope_theta)
    writer.add_rope_dimension_count(facts["rope"])
    writer.add_layer_norm_rms_eps(CONFIG.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(facts["pre"])
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    if "no_end" not in changed:
        writer.add_eos_token_id(0)
    for name, weight in weights().items():
        _add(writer, name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_sizes_vocabulary_and_weights_come_back(tmp_path: Path) -> None:
    model = read_model(write(tmp_path / "tiny.gguf"))
    assert model.name == "tiny 1K (tiny.gguf)"
    for field in CONFIG.__slots__:
        assert getattr(model.config, field) == pytest.approx(getattr(CONFIG, field)), field
    assert model.vocabulary.tokens == TOKENS
    assert model.vocabulary.merges == [("a", "b")]
    assert model.vocabulary.control == {0}
    expected = weights()
    assert model.weights.keys() == expected.keys()
    for name, weight in expected.items():
        if name == "token_embd.weight":  # 8 bits: half a step of the largest value of 32
            assert (model.weights[name] - weight).abs().max() <= weight.abs().max() / 127 / 2 * 1.01
        else:
            assert torch.equal(model.weights[name], weight), name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"architecture": "gpt2"}, "general.architecture is 'gpt2'"),
        ({"pre": "default"}, "tokenizer.ggml.pre is 'default'"),
        ({"rope": 8}, "llama.rope.dimension_count is 8"),
        ({"no_end": True}, "tokenizer.ggml.eos_token_id is None, expected int"),
    ],
)
def test_a_model_that_would_be_misread_is_refused(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(DemoError, match=message):
        read_model(write(tmp_path / "tiny.gguf", **changed))


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("not a model, only some text that is long enough")
    with pytest.raises(DemoError, match="not a readable GGUF file"):
        read_model(path)
    with pytest.raises(DemoError, match="not a readable GGUF file"):
        read_model(tmp_path / "missing.gguf")

"""The three ways to attend give the tokens of a model without any cache."""

from __future__ import annotations

import pytest
import torch
from tests.rocade.demo import tiny

from rocade.demo._generate import Answers, Batch, Decoder, prefill_prompt, split_batch
from rocade.demo._job import PAGE_SIZE, Job, Runs
from rocade.demo._model import Llama
from rocade.demo._report import differences
from rocade.demo._sdpa import SdpaAttention
from rocade.demo._terminal import AnswerStream

STEPS = 12


@pytest.fixture(autouse=True)
def inference() -> object:
    with torch.inference_mode():
        yield


def plain_attention(_layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of one whole sequence in fp64: no cache, no fused operation."""
    k, v = (x.double().repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q.double(), k) * q.shape[-1] ** -0.5
    hidden = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
    weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v).float()


def plain_tokens(model: Llama, request: list[int], steps: int) -> list[int]:
    """Greedy tokens, the whole text computed again for each."""
    text = list(request)
    for _ in range(steps):
        positions = torch.arange(len(text))
        logits = model.forward(torch.tensor(text), positions, plain_attention, positions[-1:])
        text.append(int(logits.argmax()))
    return text[len(request) :]


def silent_stream(batch: Batch) -> AnswerStream:
    return AnswerStream(["?"] * len(batch.questions), lambda tokens: (str(tokens), False))


def run_all(batch: Batch, dtype: torch.dtype, backend: str) -> tuple[Job, Runs]:
    job = Job(tiny.model(), batch, STEPS, dtype, backend)
    return job, job.run(silent_stream(batch))


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize(("count", "prompt"), [(5, 70), (2, 16), (3, 15), (1, 40)])
def test_all_ways_give_the_tokens_of_a_model_without_cache(count: int, prompt: int, backend: str) -> None:
    requests = tiny.requests(count, prompt)
    expected = [plain_tokens(tiny.model(), request, STEPS) for request in requests]
    _, runs = run_all(split_batch(requests, PAGE_SIZE), torch.float32, backend)
    for run in runs:
        assert run.answers.tokens == expected, run.name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_caches_follow_the_reference_at_first(dtype: torch.dtype) -> None:
    batch = split_batch(tiny.requests(4, 64), PAGE_SIZE)
    _, runs = run_all(batch, dtype, "auto")
    *ours, reference = runs
    for run in ours:
        assert run.answers.tokens != [[]] * 4
        for difference in differences(run.answers, reference.answers):
            assert min(difference.lead, difference.reference_lead) < 0.2, difference


def test_prompts_longer_than_a_chunk_are_prefilled_in_parts() -> None:
    model, calls = tiny.model(), []
    batch = split_batch(tiny.requests(2, 160), PAGE_SIZE)
    job = Job(model, batch, 2, torch.float32, "auto")
    whole = prefill_prompt(
        model, job.paged, batch.prompt, lambda done, total: calls.append((done, total)), 1000
    )
    sdpa = SdpaAttention(tiny.CONFIG, batch=2, capacity=batch.longest + 2, dtype=torch.float32)
    parts = prefill_prompt(model, sdpa, batch.prompt, lambda done, total: calls.append((done, total)), 64)
    assert calls == [(160, 160), (64, 160), (128, 160), (160, 160)]
    tokens = []
    for way, prompt in ((job.paged, whole), (sdpa, parts)):
        decoder = Decoder(model, way, way.fork(prompt, 2), batch.questions)
        decoder.step()
        decoder.step()
        tokens.append(decoder.answers.tokens)
    assert tokens[0] == tokens[1]


def test_the_cascade_finds_the_shared_prompt_and_holds_it_once() -> None:
    batch = split_batch(tiny.requests(5, 70), PAGE_SIZE)
    job, (cascade, paged, sdpa) = run_all(batch, torch.float32, "auto")
    assert job.cascade.num_levels == 2
    page_bytes = 2 * PAGE_SIZE * 2 * 16 * 4 * tiny.CONFIG.num_layers
    own = [-(-(len(question) + STEPS - 1) // PAGE_SIZE) for question in batch.questions]
    assert cascade.kv_bytes == paged.kv_bytes == (64 // PAGE_SIZE + sum(own)) * page_bytes
    assert sdpa.kv_bytes == 5 * (batch.longest + STEPS) * page_bytes // PAGE_SIZE


def test_every_decode_step_is_timed_and_the_first_pass_is_not_one() -> None:
    batch = split_batch(tiny.requests(3, 32), PAGE_SIZE)
    _, runs = run_all(batch, torch.float32, "auto")
    for run in runs:
        answers: Answers = run.answers
        assert len(answers.step_seconds) == len(answers.attention_seconds) == STEPS - 1
        pairs = zip(answers.attention_seconds, answers.step_seconds, strict=True)
        assert all(0 < attention < step for attention, step in pairs)


def test_explain_names_the_backend_of_both_ways() -> None:
    batch = split_batch(tiny.requests(2, 32), PAGE_SIZE)
    job, _ = run_all(batch, torch.float32, "torch")
    cascade, levels, decode = job.explain()
    assert cascade.startswith("cascade: torch")
    assert levels == "cascade: 2 levels found in the page tables"
    assert decode.startswith("batch_decode: torch")


def test_requests_split_at_a_page_and_keep_a_token() -> None:
    assert split_batch([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], 2) == Batch([1, 2, 3, 4], [[5], [6]])
    assert split_batch([[1, 2, 3, 9], [1, 2, 3, 8]], 2) == Batch([1, 2], [[3, 9], [3, 8]])
    assert split_batch([[1, 2, 3, 4]], 2) == Batch([1, 2], [[3, 4]])
    assert split_batch([[1], [2]], 2) == Batch([], [[1], [2]])

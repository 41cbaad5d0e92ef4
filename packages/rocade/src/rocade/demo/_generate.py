"""Greedy decoding of a batch that shares a prompt: the prompt, each request's own tokens, then answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from rocade.demo._attention import Attention, Rows
from rocade.demo._model import Llama

PREFILL_CHUNK = 512  # tokens a forward pass: small enough for progress, large enough for full matrix products


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids: what all requests begin with, and what each one adds (at least one token each)."""

    prompt: list[int]
    questions: list[list[int]]

    @property
    def longest(self) -> int:
        """Tokens of the longest request before decoding."""
        return len(self.prompt) + max(map(len, self.questions))


@dataclass(slots=True)
class Answers:
    """What one run made, request by request, and what each decode step took."""

    tokens: list[list[int]]
    gaps: list[list[float]]  # logit of the chosen token minus the runner-up's
    step_seconds: list[float] = field(default_factory=list)
    attention_seconds: list[float] = field(default_factory=list)


OnPrefill = Callable[[int, int], None]
"""Called after each chunk with (tokens done, tokens in all)."""

OnTokens = Callable[[list[list[int]]], None]
"""Called after each step with all tokens so far, request by request."""


def split_batch(requests: list[list[int]], page_size: int) -> Batch:
    """Cut requests at their longest common beginning that fills whole pages and leaves each a token."""
    limit = min(map(len, requests)) - 1
    common = next((i for i in range(limit) if len({r[i] for r in requests}) > 1), limit)
    common -= common % page_size
    return Batch(requests[0][:common], [r[common:] for r in requests])


def prefill_prompt(
    model: Llama,
    attention: Attention,
    prompt: list[int],
    on_prefill: OnPrefill,
    chunk_size: int = PREFILL_CHUNK,
) -> int:
    """Run the shared prompt in chunks; returns its sequence."""
    sequence = attention.start()
    for begin in range(0, len(prompt), chunk_size):
        chunk = prompt[begin : begin + chunk_size]
        rows = Rows([sequence], [len(chunk)])
        model.forward(torch.tensor(chunk), attention.plan(rows), attention, rows.last()[:0])
        on_prefill(begin + len(chunk), len(prompt))
    return sequence


def decode_batch(
    model: Llama,
    attention: Attention,
    sequences: list[int],
    questions: list[list[int]],
    steps: int,
    on_tokens: OnTokens,
) -> Answers:
    """Greedy tokens, `steps` for every request; all keep their slot to the end, so steps have equal work."""
    answers = Answers([[] for _ in sequences], [[] for _ in sequences])
    new = questions
    for step in range(steps):
        attention.seconds = 0.0
        step_began = time.perf_counter()
        chosen, gaps = _step(model, attention, sequences, new)
        if step > 0:  # the first pass reads the questions, it is no decode step
            answers.step_seconds.append(time.perf_counter() - step_began)
            answers.attention_seconds.append(attention.seconds)
        for request, (token, gap) in enumerate(zip(chosen, gaps, strict=True)):
            answers.tokens[request].append(token)
            answers.gaps[request].append(gap)
        new = [[token] for token in chosen]
        on_tokens(answers.tokens)
    return answers


def _step(
    model: Llama, attention: Attention, sequences: list[int], new: list[list[int]]
) -> tuple[list[int], list[float]]:
    """Append `new` to each sequence; returns the likeliest next tokens and their lead in logits."""
    rows = Rows(sequences, [len(tokens) for tokens in new])
    tokens = torch.tensor([token for part in new for token in part])
    logits = model.forward(tokens, attention.plan(rows), attention, rows.last())
    best = logits.topk(2, dim=-1)
    return best.indices[:, 0].tolist(), (best.values[:, 0] - best.values[:, 1]).tolist()

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
    leads: list[list[float]]  # logit of the chosen token minus the runner-up's
    step_seconds: list[float] = field(default_factory=list)
    attention_seconds: list[float] = field(default_factory=list)


OnPrefill = Callable[[int, int], None]
"""Called after each chunk with (tokens done, tokens in all)."""


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


class Decoder:
    """Greedy decoding of a batch, one token of every request a step.

    Requests keep their slot after their end mark, so that all steps have equal work.
    """

    def __init__(
        self, model: Llama, attention: Attention, sequences: list[int], questions: list[list[int]]
    ) -> None:
        """`sequences` hold the prompt. The first step reads `questions`; it is not timed as a decode step."""
        self._model, self._attention, self.sequences = model, attention, sequences
        self._new = questions
        self.answers = Answers([[] for _ in sequences], [[] for _ in sequences])

    def step(self) -> None:
        """Append what is new to each sequence and choose the likeliest next tokens."""
        self._attention.seconds = 0.0
        began = time.perf_counter()
        chosen, leads = self._next()
        if self.answers.tokens[0]:
            self.answers.step_seconds.append(time.perf_counter() - began)
            self.answers.attention_seconds.append(self._attention.seconds)
        for request, (token, lead) in enumerate(zip(chosen, leads, strict=True)):
            self.answers.tokens[request].append(token)
            self.answers.leads[request].append(lead)
        self._new = [[token] for token in chosen]

    def _next(self) -> tuple[list[int], list[float]]:
        """Likeliest next token of each request, and its lead over the runner-up in logits."""
        rows = Rows(self.sequences, [len(tokens) for tokens in self._new])
        tokens = torch.tensor([token for part in self._new for token in part])
        logits = self._model.forward(tokens, self._attention.plan(rows), self._attention, rows.last())
        best = logits.topk(2, dim=-1)
        return best.indices[:, 0].tolist(), (best.values[:, 0] - best.values[:, 1]).tolist()

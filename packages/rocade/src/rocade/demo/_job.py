"""The demo's job: one batch answered three ways by one model, step by step in turn.

In turn, because other load on the machine then meets all three alike, and the ratios of their times hold.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from rocade.demo._attention import Attention
from rocade.demo._cache import PagedCache
from rocade.demo._generate import Batch, Decoder, prefill_prompt
from rocade.demo._model import Llama
from rocade.demo._paged import CascadeAttention, PagedAttention
from rocade.demo._report import Run
from rocade.demo._sdpa import SdpaAttention
from rocade.demo._terminal import AnswerStream, Progress

PAGE_SIZE = 16  # tokens; what serving engines use


class Runs(NamedTuple):
    """What each way did."""

    cascade: Run
    paged: Run
    sdpa: Run


class Job:
    """A model, a batch, and the three ways to attend. The paged ways share a pool, and in it the prompt."""

    def __init__(self, model: Llama, batch: Batch, steps: int, dtype: torch.dtype, backend: str) -> None:
        self._model, self._batch, self._steps = model, batch, steps
        config, requests = model.config, len(batch.questions)
        own_tokens = batch.longest - len(batch.prompt) + steps  # of the longest request, beside the prompt's
        own_pages = -(-own_tokens // PAGE_SIZE)
        num_pages = len(batch.prompt) // PAGE_SIZE + 2 * own_pages * requests
        cache = PagedCache(config, num_pages=num_pages, page_size=PAGE_SIZE, dtype=dtype)
        self.cascade = CascadeAttention(config, cache, backend)
        self.paged = PagedAttention(config, cache, backend)
        self.sdpa = SdpaAttention(config, batch=requests, capacity=batch.longest + steps, dtype=dtype)

    def run(self, stream: AnswerStream) -> Runs:
        """The prompt once for each kind of cache, then all answers, those of the cascade to `stream`."""
        paged_prompt = self._prefill(self.paged, "paged cache     ")
        sdpa_prompt = self._prefill(self.sdpa, "PyTorch's caches")
        decoders = [
            self._decoder(way, prompt)
            for way, prompt in (
                (self.cascade, paged_prompt),
                (self.paged, paged_prompt),
                (self.sdpa, sdpa_prompt),
            )
        ]
        print("Answers", flush=True)
        for step in range(self._steps):
            first = step % len(decoders)  # who goes first finds colder caches, so take turns in that, too
            for decoder in decoders[first:] + decoders[:first]:
                decoder.step()
            stream.update(decoders[0].answers.tokens)
        stream.finish(decoders[0].answers.tokens)
        ways = (self.cascade, self.paged, self.sdpa)
        return Runs(*(_result(way, decoder) for way, decoder in zip(ways, decoders, strict=True)))

    def _prefill(self, attention: Attention, label: str) -> int:
        return prefill_prompt(self._model, attention, self._batch.prompt, Progress(f"Prompt into {label}"))

    def _decoder(self, attention: Attention, prompt: int) -> Decoder:
        sequences = attention.fork(prompt, len(self._batch.questions))
        return Decoder(self._model, attention, sequences, self._batch.questions)

    def explain(self) -> list[str]:
        """Lines that name the backend of each of rocade's ways in decode, and why it was chosen."""
        found = f"cascade: {self.cascade.num_levels} levels found in the page tables"
        return [*self.cascade.explain(), found, *self.paged.explain()]


def _result(attention: Attention, decoder: Decoder) -> Run:
    return Run(attention.name, decoder.answers, attention.kv_bytes(decoder.sequences))

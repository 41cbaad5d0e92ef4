"""The demo's job: the same batch answered three ways, on one model, one after the other."""

from __future__ import annotations

import torch

from rocade.demo._attention import Attention
from rocade.demo._cache import PagedCache
from rocade.demo._generate import Batch, OnTokens, decode_batch, prefill_prompt
from rocade.demo._model import Llama
from rocade.demo._paged import CascadeAttention, PagedAttention
from rocade.demo._report import Run
from rocade.demo._sdpa import SdpaAttention
from rocade.demo._terminal import AnswerStream, Progress

PAGE_SIZE = 16  # tokens; what serving engines use


class Job:
    """A batch and a model; the methods are the steps, in order."""

    def __init__(self, model: Llama, batch: Batch, steps: int, dtype: torch.dtype, backend: str) -> None:
        self._model, self._batch, self._steps, self._dtype = model, batch, steps, dtype
        config = model.config
        own_tokens = batch.longest - len(batch.prompt) + steps  # of the longest request, beside the prompt's
        own_pages = -(-own_tokens // PAGE_SIZE)
        num_pages = len(batch.prompt) // PAGE_SIZE + own_pages * len(batch.questions)
        self._cache = PagedCache(config, num_pages=num_pages, page_size=PAGE_SIZE, dtype=dtype)
        self.cascade = CascadeAttention(config, self._cache, backend)
        self.paged = PagedAttention(config, self._cache, backend)

    def prefill(self) -> int:
        """Run the prompt through the model once, into the paged cache, for both of rocade's ways."""
        return prefill_prompt(self._model, self.paged, self._batch.prompt, Progress("  prompt "))

    def run_cascade(self, prompt: int, stream: AnswerStream) -> Run:
        """Decode with shared pages read once, streaming the answers."""
        run = self._decode(self.cascade, prompt, stream.update)
        stream.finish(run.answers.tokens)
        return run

    def run_paged(self, prompt: int) -> Run:
        """Decode from the same pages, each request reading all of its own."""
        return self._decode(self.paged, prompt, self._count())

    def run_sdpa(self) -> Run:
        """Everything again with PyTorch's attention and a cache for each request."""
        batch, config = self._batch, self._model.config
        capacity = batch.longest + self._steps
        sdpa = SdpaAttention(config, batch=len(batch.questions), capacity=capacity, dtype=self._dtype)
        prompt = prefill_prompt(self._model, sdpa, batch.prompt, Progress("  prompt "))
        return self._decode(sdpa, prompt, self._count())

    def _decode(self, attention: Attention, prompt: int, on_tokens: OnTokens) -> Run:
        sequences = attention.fork(prompt, len(self._batch.questions))
        answers = decode_batch(
            self._model, attention, sequences, self._batch.questions, self._steps, on_tokens
        )
        run = Run(attention.name, answers, attention.kv_bytes(sequences))
        attention.release(sequences)
        return run

    def _count(self) -> OnTokens:
        progress = Progress("  decode ")
        return lambda tokens: progress(len(tokens[0]), self._steps)

    def explain(self) -> list[str]:
        """Lines that name the backend of each of rocade's ways in decode, and why it was chosen."""
        found = f"cascade: {self.cascade.num_levels} levels found in the page tables"
        return [*self.cascade.explain(), found, *self.paged.explain()]

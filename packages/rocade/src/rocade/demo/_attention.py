"""What the model's attention is to the demo: a cache, a plan for each forward pass, and a clock around both.

Letters: T new token rows, B requests of the pass, Hq and Hkv heads, D head dim.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Rows:
    """The new tokens of one forward pass: `counts[i]` rows of `sequences[i]`, packed in that order."""

    sequences: list[int]
    counts: list[int]

    def positions(self, lengths: list[int]) -> torch.Tensor:
        """int64 `[T]`: each row's place in its own sequence, given the lengths with the new tokens."""
        pairs = zip(lengths, self.counts, strict=True)
        return torch.cat([torch.arange(length - count, length) for length, count in pairs])

    def owners(self) -> torch.Tensor:
        """int64 `[T]`: which entry of `sequences` each row belongs to."""
        return torch.arange(len(self.counts)).repeat_interleave(torch.tensor(self.counts))

    def last(self) -> torch.Tensor:
        """int64 `[B]`: the last row of each sequence, whose logits choose the next token."""
        return torch.tensor(self.counts).cumsum(0) - 1


class Attention(ABC):
    """One way to attend. `plan` opens a forward pass; then the model calls the object once a layer.

    `seconds` grows by the time of planning and attending. Writing the new keys and values is not counted: all
    ways must do it.
    """

    name: str

    def __init__(self, dtype: torch.dtype) -> None:
        """`dtype` is that of the cache and of attention's inputs; the model hands over and gets back fp32."""
        self.seconds = 0.0
        self._dtype = dtype

    @abstractmethod
    def kv_bytes(self, sequences: list[int]) -> int:
        """Bytes that the keys and values of these sequences take in all layers."""

    @abstractmethod
    def start(self) -> int:
        """The empty sequence that the shared prompt goes into."""

    @abstractmethod
    def fork(self, prompt: int, count: int) -> list[int]:
        """`count` sequences that continue the prompt."""

    def plan(self, rows: Rows) -> torch.Tensor:
        """Make room for new tokens and plan their attention; returns the positions, int64 `[T]`."""
        positions = self._extend(rows)
        began = time.perf_counter()
        self._plan(rows)
        self.seconds += time.perf_counter() - began
        return positions

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Write `k, v [T, Hkv, D]` to the cache and return the attention of `q [T, Hq, D]`."""
        q, k, v = (x.to(self._dtype) for x in (q, k, v))
        self._append(layer, k, v)
        began = time.perf_counter()
        out = self._attend(layer, q)
        self.seconds += time.perf_counter() - began
        return out.float()

    @abstractmethod
    def _extend(self, rows: Rows) -> torch.Tensor: ...

    @abstractmethod
    def _plan(self, rows: Rows) -> None: ...

    @abstractmethod
    def _append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None: ...

    @abstractmethod
    def _attend(self, layer: int, q: torch.Tensor) -> torch.Tensor: ...

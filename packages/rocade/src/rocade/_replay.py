"""Calls that a backend can repeat unasked: of the same kind, with tensors of the same layout.

The functions of a public module first try what they `find`, and after an ordinary call tell `learn` what it
was called with. A backend that can repeat has a method `learn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Kind = tuple[str, str]  # what is called, and the backend that was asked for
Repeat = Callable[..., bool]

_repeats: dict[Kind, Repeat] = {}


def find(kind: Kind) -> Repeat | None:
    """What repeats a call for given tensors, results included, and returns whether it did; None at first."""
    return _repeats.get(kind)


def learn(backend: object, kind: Kind, tensors: Sequence[torch.Tensor]) -> None:
    """Let the backend that has just served a call remember it."""
    remember = getattr(backend, "learn", None)
    if remember is not None and (repeat := remember(kind, tensors)) is not None:
        _repeats[kind] = repeat

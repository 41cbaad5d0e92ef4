"""Calls that a backend can repeat unasked: of the same kind, with tensors of the same layout.

The functions of a public module first try `attempt`, and after an ordinary call tell `learn` what it was
called with. A backend that can repeat has a method `learn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Kind = tuple[str, str]  # what is called, and the backend that was asked for
Repeat = Callable[..., bool]

_repeats: dict[Kind, Repeat] = {}


def attempt(kind: Kind, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the call was repeated for these tensors, so that nothing is left to do."""
    repeat = _repeats.get(kind)
    return repeat is not None and repeat(*tensors)


def known(kind: Kind) -> bool:
    """Whether an attempt may succeed, so that results are worth making for it."""
    return kind in _repeats


def learn(backend: object, kind: Kind, tensors: Sequence[torch.Tensor]) -> None:
    """Let the backend that has just served a call remember it."""
    remember = getattr(backend, "learn", None)
    if remember is not None and (repeat := remember(kind, tensors)) is not None:
        _repeats[kind] = repeat

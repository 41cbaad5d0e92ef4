"""Single calls on an idle GPU, for tests of what they plan, keep and launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tests.rocade.backends.idle_driver import STRUCTS, Driver, Launched
from tests.rocade.backends.run_changes import half

import rocade
from rocade import _single
from rocade.backends.hip._attention import AttentionPlan

HEADS, DIM = (4, 2), 64
Call = Callable[..., Any]


def prefill(rows: int = 20, keys: int = 3000, **options: Any) -> Any:  # noqa: ANN401  results of two shapes
    options = {"causal": True, "return_lse": True, **options}
    k, v = half(keys, HEADS[1], DIM), half(keys, HEADS[1], DIM)
    return rocade.single_prefill_with_kv_cache(half(rows, HEADS[0], DIM), k, v, **options)


def decode(keys: int = 3000, **options: Any) -> Any:  # noqa: ANN401  as above
    k, v = half(keys, HEADS[1], DIM), half(keys, HEADS[1], DIM)
    return rocade.single_decode_with_kv_cache(half(HEADS[0], DIM), k, v, **{"return_lse": True, **options})


@contextmanager
def driven(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """A driver for this thread's calls, of which none is known yet."""
    monkeypatch.setattr(_single, "_local", _single._Local())
    made = Driver()
    with made.emulation, torch.inference_mode():
        yield made


def made_plans(monkeypatch: pytest.MonkeyPatch) -> list[AttentionPlan]:
    """The plans that are made from now on."""
    found: list[AttentionPlan] = []
    init = AttentionPlan.__init__

    def count(self: AttentionPlan, *given: Any) -> None:
        init(self, *given)
        found.append(self)

    monkeypatch.setattr(AttentionPlan, "__init__", count)
    return found


def fields(launches: list[Launched]) -> list[object]:
    """Launches without the addresses of partial results, which are new memory each time."""
    found: list[object] = []
    for name, numbers, block in launches:
        struct: Any = STRUCTS[name.split("-")[0]].from_buffer_copy(block)
        found.append(
            (name, numbers, {f: getattr(struct, f) for f, _ in struct._fields_ if "partial" not in f})
        )
    return found

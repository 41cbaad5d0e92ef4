"""Which emulation is active: while one is, CPU tensors stand for those of its target."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass(slots=True, eq=False)
class Emulation:
    """How to emulate, and what came of it. Made by `rocade.emulate`; use it as a context manager.

    Attributes:
        target: the GPU that CPU tensors stand for inside the context.
        settings: for every launch, in the words of `rocade_emulator.launch`.
        raises: whether a finding is an `EmulationError`; else it is only kept.
        results: a `rocade_emulator.Result` for each launch so far, in order: findings, counters, traffic.
        device: the backend's.
    """

    target: str
    settings: dict[str, Any]
    raises: bool = True
    results: list[Any] = field(default_factory=list)
    device: object = field(default=None, repr=False)
    _entered: list[Token[Emulation | None]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._entered.append(_active.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active.reset(self._entered.pop())


_active: ContextVar[Emulation | None] = ContextVar("rocade_emulation", default=None)


def current() -> Emulation | None:
    """The innermost emulation of this thread, or of this asyncio task."""
    return _active.get()

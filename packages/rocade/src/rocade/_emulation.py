"""Which emulation is active: while one is, CPU tensors stand for those of its target."""

from __future__ import annotations

from contextvars import ContextVar
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

    def __enter__(self) -> Self:
        _active.set((*_active.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave it: the last entry of this very object, which generators may not leave in order."""
        entered = _active.get()
        at = max((at for at, one in enumerate(entered) if one is self), default=None)
        if at is None:
            raise RuntimeError("rocade.emulate: left in another thread or task than it was entered in")
        _active.set(entered[:at] + entered[at + 1 :])


# Entered and not yet left, outermost first. In the context and not in the objects, which threads may share.
_active: ContextVar[tuple[Emulation, ...]] = ContextVar("rocade_emulation", default=())


def current() -> Emulation | None:
    """The innermost emulation of this thread, or of this asyncio task."""
    entered = _active.get()
    return entered[-1] if entered else None

"""The order in which `backend="auto"` tries backends: one list, and nothing else decides it."""

from __future__ import annotations

from arch_caps._target import target_of

# (start of a target's name, backends in order); the first match decides, and the last fits any device.
PREFERENCE = (
    ("cpu", ("cpu", "torch")),
    ("gfx", ("hip", "aiter", "torch")),
    ("sm_", ("hip", "torch")),
    ("", ("torch",)),
)


def preference(target: str) -> tuple[str, ...]:
    """Backends in the order in which `backend="auto"` tries them on a target, known to the table or not."""
    name = target_of(target)
    return next(backends for start, backends in PREFERENCE if name.startswith(start))

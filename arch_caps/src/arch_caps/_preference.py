"""The order in which `backend="auto"` tries backends: one list, and nothing else decides it.

Also the names that stand for more than one backend.
"""

from __future__ import annotations

from types import MappingProxyType

from arch_caps._target import target_of

# Names that users may give for a group of backends, which are then tried in this order.
FAMILIES = MappingProxyType({"aiter": ("aiter_asm", "aiter_ck")})

# (start of a target's name, backends in order); the first match decides, and the last fits any device.
PREFERENCE = (
    ("cpu", ("cpu", "torch")),
    ("gfx", ("hip", *FAMILIES["aiter"], "torch")),
    ("sm_", ("hip", "torch")),
    ("", ("torch",)),
)


def preference(target: str) -> tuple[str, ...]:
    """Backends in the order in which `backend="auto"` tries them on a target, known to the table or not."""
    name = target_of(target)
    return next(backends for start, backends in PREFERENCE if name.startswith(start))


def members(backend: str) -> tuple[str, ...]:
    """The backends that a name stands for: those of a family in order of preference, else itself alone."""
    return FAMILIES.get(backend, (backend,))

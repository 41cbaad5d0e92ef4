"""The backends of this build by name. A backend's module is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from rocade.backends._base import Backend

_MODULES = {
    "hip": "rocade.backends.hip",
    "aiter_asm": "rocade.backends.aiter.asm",
    "aiter_ck": "rocade.backends.aiter.ck",
    "cpu": "rocade.backends.cpu",
    "torch": "rocade.backends.torch",
}


class _Registry(Mapping[str, Backend]):
    """Read-only: name to backend. Iterating and `in` import nothing."""

    def __getitem__(self, name: str) -> Backend:
        backend: Backend = import_module(_MODULES[name]).BACKEND
        return backend

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


REGISTRY: Mapping[str, Backend] = _Registry()

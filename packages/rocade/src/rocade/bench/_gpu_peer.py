"""FlashInfer as the rival of `rocade bench gpu`, when it is installed; else why it is not there."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, TypeAlias

NAME = "FlashInfer"
Library: TypeAlias = Any  # the module rocade or flashinfer: calls of one are calls of the other


@dataclass(frozen=True, slots=True)
class Peer:
    """The imported package, or None and the reason."""

    module: Library
    text: str

    @property
    def present(self) -> bool:
        """Whether it can be measured."""
        return self.module is not None


def load() -> Peer:
    """Import the real `flashinfer`; rocade's own stand-in does not count as a rival."""
    try:
        module = importlib.import_module("flashinfer")
    except Exception as error:  # whatever a broken install raises is the reason
        return Peer(None, f"{NAME} absent ({type(error).__name__}: {error})")
    if module.__name__.startswith("rocade"):
        return Peer(None, f"{NAME} absent (its name is taken by rocade)")
    return Peer(module, f"{NAME} {module.__version__}")

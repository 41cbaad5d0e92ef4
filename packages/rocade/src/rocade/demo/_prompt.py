"""The texts of the demo, written for it (`data/`): a long system prompt, example turns, and questions."""

from __future__ import annotations

import itertools
from importlib.resources import files

Turn = tuple[str, str]
"""(role, content) of one message of a chat; roles are `system`, `user` and `assistant`."""


def _read(name: str) -> str:
    return (files(__package__) / "data" / name).read_text(encoding="utf-8")


def system_prompt() -> str:
    """The instruction and the handbook it speaks of."""
    return _read("instruction.txt") + "\n" + _read("handbook.md")


def examples() -> list[Turn]:
    """Answered questions that show the model the form of an answer."""
    return list(zip(itertools.cycle(("user", "assistant")), _read("examples.txt").splitlines(), strict=False))


def questions(count: int) -> list[str]:
    """The first `count` questions; they start again when there are fewer."""
    return list(itertools.islice(itertools.cycle(_read("questions.txt").splitlines()), count))

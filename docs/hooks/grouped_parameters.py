"""Griffe extension: `first, second: text` under `Args:` in a docstring documents both parameters.

Sources group parameters that share a sentence; the API pages give each its own row, with its type. Griffe
alone would take the group for one unknown parameter, which a strict build refuses.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# An entry of an `Args:` section: names at its indentation, and the text with its deeper continuation lines.
_ENTRY = re.compile(
    r"^(?P<indent> +)(?P<names>\*?\w+(?:, \w+)+): (?P<text>.*(?:\n(?P=indent) +\S.*)*)", re.MULTILINE
)


def split(docstring: str) -> str:
    """The docstring with one entry for each parameter of a group."""

    def entries(match: re.Match[str]) -> str:
        return "\n".join(f"{match['indent']}{name}: {match['text']}" for name in match["names"].split(", "))

    before, section, after = docstring.partition("Args:\n")
    arguments, blank, rest = after.partition("\n\n")
    return before + section + _ENTRY.sub(entries, arguments) + blank + rest


class GroupedParameters(griffe.Extension):
    """Rewrites docstrings as sources are loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = split(obj.docstring.value)

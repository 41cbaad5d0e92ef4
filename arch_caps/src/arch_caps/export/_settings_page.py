"""The documentation page on environment variables, from the `SETTINGS` of every distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from arch_caps.export._matrix import table

INTRODUCTION = """\
# Settings

Environment variables, by the distribution that reads them. Each is read when it is needed, not at import.
"""


class SettingLike(Protocol):
    """What a `_settings.py` declares for each variable."""

    @property
    def name(self) -> str:
        """The variable."""

    @property
    def type(self) -> type:
        """What its value is read as."""

    @property
    def default(self) -> object:
        """The value when the variable is not set."""

    @property
    def text(self) -> str:
        """What it does."""


def settings_page(settings: Mapping[str, Sequence[SettingLike]]) -> str:
    """The page, below its first line; `settings` is distribution -> its settings."""
    parts = [INTRODUCTION]
    for distribution, found in settings.items():
        if found:
            rows = [[f"`{s.name}`", s.type.__name__, _default(s), s.text] for s in found]
            parts += [f"## {distribution}\n", table(["Variable", "Type", "Default", "Meaning"], rows)]
    return "\n".join(parts)


def _default(setting: SettingLike) -> str:
    if isinstance(setting.default, bool):
        return "`1`" if setting.default else "`0`"
    return "not set" if setting.default in ("", None) else f"`{setting.default}`"

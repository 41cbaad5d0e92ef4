"""Every environment variable that arch_caps reads: its name, type, default and meaning.

A setting is read when it is needed, never at import.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable. The settings page of the documentation is generated from these fields."""

    name: str
    type: type[str]
    default: str
    text: str

    def read(self) -> str:
        """The value now, without surrounding blanks."""
        return os.environ.get(self.name, self.default).strip()


ALLOW_KNOWN_BAD = Setting(
    "ROCADE_ALLOW_KNOWN_BAD",
    str,
    "",
    "Use a backend in spite of its recorded defects: the ids of defects, separated by commas, or `all` (also "
    "`1`). Results may be wrong or the process may die; each defect passed over is named once in a warning.",
)

SETTINGS = (ALLOW_KNOWN_BAD,)


def allows_known_bad(defect_id: str) -> bool:
    """Whether the user has chosen to run into this defect (`ROCADE_ALLOW_KNOWN_BAD`)."""
    chosen = ALLOW_KNOWN_BAD.read()
    if not chosen:
        return False
    ids = {part.strip() for part in chosen.split(",")}
    return bool(ids & {"all", "1", defect_id})

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

FLASHINFER_ALLOW_KNOWN_BAD = Setting(
    "FLASHINFER_ARCH_ALLOW_KNOWN_BAD",
    str,
    "",
    "AMD's FlashInfer's name for `ROCADE_ALLOW_KNOWN_BAD=all`: `1` passes over every recorded "
    "defect, and nothing else does.",
)

SETTINGS = (ALLOW_KNOWN_BAD, FLASHINFER_ALLOW_KNOWN_BAD)


def allows_known_bad(defect_id: str) -> str:
    """The setting by which the user has chosen to run into this defect; empty for none."""
    ids = {part.strip() for part in ALLOW_KNOWN_BAD.read().split(",")}
    if ids & {"all", "1", defect_id}:
        return ALLOW_KNOWN_BAD.name
    return FLASHINFER_ALLOW_KNOWN_BAD.name if FLASHINFER_ALLOW_KNOWN_BAD.read() == "1" else ""

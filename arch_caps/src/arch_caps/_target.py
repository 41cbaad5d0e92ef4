"""`Target`: facts about one kind of silicon, and the normalisation of the names it goes by."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass

_SM = re.compile(r"sm_?(\d+)[a-z]?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Facts of the silicon, each with its source."""

    name: str


def target_of(name: str) -> str:
    """Normalise a device name to a target name, known to the table or not.

    `"gfx942:sramecc+:xnack-"` -> `"gfx942"`; `"sm90a"` -> `"sm_90"`; `"cpu"` -> this machine's CPU target.
    """
    base = name.strip().split(":")[0].lower()
    if base == "cpu":
        return "cpu-x86_64" if platform.machine().lower() in ("x86_64", "amd64") else "cpu-generic"
    match = _SM.match(base)
    return f"sm_{match.group(1)}" if match else base

"""`Place`: where a call runs, in the words of the capability table."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """What a device is to the table, and whether the emulator stands for it."""

    target: str
    emulated: bool

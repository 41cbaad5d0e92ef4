"""The one exception of the demo, which `main` prints without a traceback."""

from __future__ import annotations


class DemoError(RuntimeError):
    """Something outside the demo is missing or unusable: a model file that cannot be fetched or read."""

"""What a test needs from outside and an install brings; without it the test is skipped, or fails if strict.

`ROCADE_TESTS_STRICT=1`, which CI sets, turns every such skip into a failure, so that nothing is left out
unseen. Skips for a reason that no install removes (no GPU, the capability table refuses) are pytest's own.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest

STRICT = os.environ.get("ROCADE_TESTS_STRICT") == "1"


def missing(reason: str) -> NoReturn:
    """Skip this test, or the module that is being imported; fail if strict."""
    if STRICT:
        pytest.fail(f"missing in a strict run: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def module(name: str, reason: str = "") -> ModuleType:
    """The imported module; without it the test is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing(reason or f"{name} is not installed ({error})")


def unless(present: bool, reason: str) -> pytest.MarkDecorator:
    """A mark that skips where something is not present; a strict run goes on, and fails by itself."""
    return pytest.mark.skipif(not present and not STRICT, reason=reason)

"""The real model's file, for tests that skip where it is not present: tests never fetch it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import needs

from rocade.demo._download import find_model
from rocade.demo._errors import DemoError
from rocade.demo._gguf import read_model
from rocade.demo._tokenizer import Tokenizer


@pytest.fixture(scope="session")
def model_file() -> Path:
    """Path of the checked file; skips with the demo's own words."""
    try:
        return find_model(fetch=False)
    except DemoError as error:
        needs.missing(f"{error}; `rocade demo` fetches it")


@pytest.fixture(scope="session")
def real_tokenizer(model_file: Path) -> Tokenizer:
    """The real model's tokenizer."""
    return Tokenizer(read_model(model_file).vocabulary)

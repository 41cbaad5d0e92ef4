"""The code objects of AITER's wheel as an installation of them."""

from __future__ import annotations

import pytest
from tests.emulator import aiter


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder, named by AITER's own environment variable."""
    folder = aiter.code_objects()
    monkeypatch.setenv("AITER_ASM_DIR", folder)
    return folder

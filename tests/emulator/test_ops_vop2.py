"""Every VOP2 instruction on edge cases and random values, against AMD's pseudo-code."""

from __future__ import annotations

import pytest
from tests.emulator import isa_suite
from tests.emulator.isa_table import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_plain_form(target: str) -> None:
    """Vector sources, all lanes and some."""
    assert isa_suite.check(target, "vop2") > 50

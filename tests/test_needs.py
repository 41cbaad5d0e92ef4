"""A test that lacks an input is skipped, and fails in a strict run; every test asks in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import needs


def test_what_is_there_is_returned() -> None:
    assert needs.module("tests.needs") is needs


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    raised = pytest.fail.Exception if strict else pytest.skip.Exception
    monkeypatch.setattr(needs, "STRICT", strict)
    with pytest.raises(raised, match="no_such_module"):
        needs.module("no_such_module")
    with pytest.raises(raised, match="a reason"):
        needs.module("no_such_module", "a reason")
    assert needs.unless(False, "a reason").args == (not strict,)


def test_no_test_skips_for_a_missing_module_in_another_way() -> None:
    files = Path(__file__).parent.rglob("*.py")
    assert [path for path in files if "pytest." + "importorskip" in path.read_text(encoding="utf-8")] == []

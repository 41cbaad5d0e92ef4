"""Environment variables of rocade: each kind of value is read as what it says, all else is refused."""

from __future__ import annotations

import pytest

from rocade import _settings


@pytest.mark.parametrize(("value", "means"), [(None, True), ("0", False), ("1", True), ("", False)])
def test_a_switch(monkeypatch: pytest.MonkeyPatch, value: str | None, means: bool) -> None:
    if value is None:
        monkeypatch.delenv("ROCADE_AITER_BUILD", raising=False)
    else:
        monkeypatch.setenv("ROCADE_AITER_BUILD", value)
    assert _settings.aiter_build() is means


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "", "²"])
def test_a_number_is_whole_and_above_0(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ROCADE_AITER_BUILD_SECONDS", value)
    with pytest.raises(ValueError, match="ROCADE_AITER_BUILD_SECONDS"):
        _settings.aiter_build_seconds()
    monkeypatch.setenv("ROCADE_AITER_BUILD_SECONDS", "90")
    assert _settings.aiter_build_seconds() == 90


def test_a_child_gets_the_environment_with_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("CHANGED", "1")
    monkeypatch.setenv("REMOVED", "1")
    found = _settings.child_environment(CHANGED="2", REMOVED=None, ADDED="3")
    assert (found["KEPT"], found["CHANGED"], found["ADDED"]) == ("1", "2", "3")
    assert "REMOVED" not in found


def test_every_setting_is_documented() -> None:
    found = {value for value in vars(_settings).values() if isinstance(value, _settings.Setting)}
    assert set(_settings.SETTINGS) == found

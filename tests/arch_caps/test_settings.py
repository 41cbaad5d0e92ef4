"""The one setting of the table: which known defects the user has chosen to run into."""

from __future__ import annotations

import pytest

from arch_caps._settings import ALLOW_KNOWN_BAD, FLASHINFER_ALLOW_KNOWN_BAD, SETTINGS, allows_known_bad


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        ("all", True),
        ("a-b", True),
        ("x, a-b", True),
        ("a", False),
        ("", False),
        ("ALL", False),
        ("a-b-c", False),
    ],
)
def test_ids_or_all(monkeypatch: pytest.MonkeyPatch, value: str, allowed: bool) -> None:
    monkeypatch.setenv("ROCADE_ALLOW_KNOWN_BAD", value)
    assert allows_known_bad("a-b") == ("ROCADE_ALLOW_KNOWN_BAD" if allowed else "")


@pytest.mark.parametrize(
    ("value", "allowed"), [("1", True), ("0", False), ("", False), ("all", False), ("a-b", False)]
)
def test_flashinfers_name_allows_all_by_1_alone(
    monkeypatch: pytest.MonkeyPatch, value: str, allowed: bool
) -> None:
    monkeypatch.delenv("ROCADE_ALLOW_KNOWN_BAD", raising=False)
    monkeypatch.setenv("FLASHINFER_ARCH_ALLOW_KNOWN_BAD", value)
    assert allows_known_bad("a-b") == ("FLASHINFER_ARCH_ALLOW_KNOWN_BAD" if allowed else "")


def test_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCADE_ALLOW_KNOWN_BAD", raising=False)
    assert not allows_known_bad("a-b")


def test_documented() -> None:
    assert SETTINGS == (ALLOW_KNOWN_BAD, FLASHINFER_ALLOW_KNOWN_BAD)
    assert ALLOW_KNOWN_BAD.text

"""Version arithmetic: half-open windows, stages of a release, and unknown versions."""

from __future__ import annotations

import pytest

from arch_caps import Toolchain
from arch_caps._versions import Window, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("7.2", ((7, 2), 0)),
        ("7.2.0", ((7, 2), 0)),
        ("v0.1.20", ((0, 1, 20), 0)),
        ("10.0", ((10,), 0)),
        ("7.2.53211-e1a6bc5663", ((7, 2, 53211), 0)),
        ("0.1.20+rocm10.1.0a20260819", ((0, 1, 20), 0)),
        ("0.1.16.post3", ((0, 1, 16), 4)),
        ("0.1.16.post", ((0, 1, 16), 1)),
        ("0.1.20.dev12", ((0, 1, 20), -1)),
        ("0.1.20rc1", ((0, 1, 20), -1)),
        ("", None),
        (None, None),
        ("main", None),
        ("post1", None),
    ],
)
def test_parse(text: str | None, version: object) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("window", "version", "inside"),
    [
        (Window(start="7.2", end="7.3"), "7.2", True),
        (Window(start="7.2", end="7.3"), "7.2.0", True),
        (Window(start="7.2", end="7.3"), "7.2.4", True),
        (Window(start="7.2", end="7.3"), "7.3", False),
        (Window(start="7.2", end="7.3"), "7.3.0", False),
        (Window(start="7.2", end="7.3"), "7.1.9", False),
        (Window(start="7.2", end="7.3"), "7.10", False),
        (Window(start="7.2", end="7.3"), "10.0", False),
        (Window(end="0.1.12"), "0.1.9", True),
        (Window(end="0.1.12"), "0.1.11.post2", True),
        (Window(end="0.1.12"), "0.1.12", False),
        (Window(start="0.1.20"), "0.1.20.post1", True),
        (Window(start="0.1.20"), "0.2", True),
        (Window(start="0.1.20"), "0.1.19.post9", False),
    ],
    ids=str,
)
def test_window_is_half_open(window: Window, version: str, inside: bool) -> None:
    assert window.contains(version) is inside


def test_a_prerelease_is_bad_at_both_ends() -> None:
    assert Window(start="0.1.20").contains("0.1.20.dev12")
    assert Window(end="0.1.20").contains("0.1.20rc1")


@pytest.mark.parametrize("version", [None, "", "unknown", "nightly"])
def test_an_unknown_version_is_inside(version: str | None) -> None:
    assert Window(start="7.2", end="7.3").contains(version)
    assert Window(end="7.3").contains(version)


@pytest.mark.parametrize(
    ("start", "end"),
    [(None, None), ("x", None), ("7.3", "7.2"), ("7.2", "7.2"), ("7.2", "7.2.0"), ("7", "y")],
)
def test_a_window_without_meaning_is_refused(start: str | None, end: str | None) -> None:
    with pytest.raises(ValueError, match="window"):
        Window(start=start, end=end)


def test_print() -> None:
    assert str(Window(start="7.2", end="7.3")) == "[7.2, 7.3)"
    assert str(Window(end="7.3")) == "(-inf, 7.3)"
    assert str(Window(start="7.2")) == "[7.2, +inf)"
    assert str(Toolchain(aiter="0.1.20")) == "here: rocm unknown, aiter 0.1.20, compiler unknown"

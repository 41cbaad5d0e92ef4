"""Which AITER versions are known, and that others are refused with the way around."""

from __future__ import annotations

import importlib.metadata
import logging

import pytest

from rocade_kernels.aiter import library, versions
from rocade_kernels.aiter.errors import UnknownVersionError


@pytest.mark.parametrize(
    ("version", "forward", "prefill"),
    [
        ("0.1.7", 280, 264),
        ("0.1.7.post2.dev18", 280, 264),
        ("0.1.10", 376, 328),
        ("0.1.10+rocm7.0", 376, 328),
        ("0.1.10.post1", 424, None),
        ("0.1.10.post3", 424, None),
        ("0.1.11", 424, 336),
        ("0.1.14", 424, 336),
        ("v0.1.16.post3", 424, 336),
        ("0.1.20", 424, 336),
        ("0.1.20.dev12+g0123456", 424, 336),
        ("0.1.20.post1+rocm7.2.manylinux_2_28", 424, 336),
    ],
)
def test_known_versions_and_the_bytes_of_their_structs(
    version: str, forward: int, prefill: int | None
) -> None:
    known = versions.require(version)
    assert library.layout_bytes(known.forward.layout) == forward
    assert (library.layout_bytes(known.prefill.layout) if known.prefill else None) == prefill


@pytest.mark.parametrize(
    "version",
    [
        *(
            "0.1.6",
            "0.1.7.dev3",
            "0.1.8",
            "0.1.9",
            "0.1.10.dev1",
            "0.1.10.post1.dev2",
            "0.1.11rc1",
            "0.1.14a0",
        ),
        *("0.1.20.post2", "0.1.21.dev1", "0.1.21", "0.2", "1.0", "unknown", ""),
    ],
)
def test_other_versions_are_refused_and_the_override_is_named(version: str) -> None:
    assert versions.known(version) is None
    with pytest.raises(UnknownVersionError, match=r"not known.*wrong numbers.*set ROCADE_AITER_VERSION"):
        versions.require(version)


def test_every_layout_is_one_of_the_loader() -> None:
    entries = [entry for known in versions.KNOWN for entry in (known.forward, known.prefill) if entry]
    assert len(set(entries)) == 6
    assert all(library.layout_bytes(entry.layout) for entry in entries)
    assert library.layout_bytes("mha_fwd 0.1.9") == 0


def installed(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def version_of(name: str) -> str:
        assert name == "amd-aiter"
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", version_of)
    monkeypatch.delenv("ROCADE_AITER_VERSION", raising=False)


def test_the_installed_version_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("0.1.20+rocm7.2", monkeypatch)
    assert versions.version_in_use() == "0.1.20+rocm7.2"
    installed("0.1.21", monkeypatch)
    with pytest.raises(UnknownVersionError, match=r"AITER 0\.1\.21 is not known"):
        versions.version_in_use()
    installed(None, monkeypatch)
    with pytest.raises(UnknownVersionError, match=r"not installed.*ROCADE_AITER_VERSION"):
        versions.version_in_use()


@pytest.mark.parametrize("present", [None, "0.1.21", "0.1.20"])
def test_an_override_is_used_and_is_loud(
    present: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(present, monkeypatch)
    monkeypatch.setenv("ROCADE_AITER_VERSION", "0.1.20")
    with caplog.at_level(logging.WARNING):
        assert versions.version_in_use() == "0.1.20"
    assert [r.getMessage() for r in caplog.records] == (
        []
        if present == "0.1.20"
        else [f"AITER {present} is treated as version 0.1.20, as ROCADE_AITER_VERSION says"]
    )


def test_an_override_must_be_a_known_version(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("0.1.20", monkeypatch)
    monkeypatch.setenv("ROCADE_AITER_VERSION", "0.1.9")
    with pytest.raises(UnknownVersionError, match=r"AITER 0\.1\.9 is not known"):
        versions.version_in_use()

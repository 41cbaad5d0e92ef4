"""An installed `aiter` of tests, an empty cache, and a process that has not asked for any library yet."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import needs
from tests.kernels.aiter import stub
from tests.rocade.backends.aiter.bootstrap.site import VERSION, Site, install

from rocade.backends.aiter.bootstrap import _variants
from rocade_kernels import _native

FOREIGN = (
    *("AITER_JIT_DIR", "AITER_REBUILD", "FLASHINFER_AITER_STRICT", "FLASHINFER_AITER_VARIANT_DIR"),
    *("GPU_ARCHS", "MAX_JOBS", "ROCADE_AITER_BUILD", "ROCADE_AITER_BUILD_SECONDS", "ROCADE_AITER_VERSION"),
)


def needs_loader() -> Path:
    """Rocade's native library, which the check calls AITER's through."""
    if _native.library_or_none() is None:
        needs.missing("no native library, and no compiler to build it")
    return Path(_native.library()._name)


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache folder; nothing of this machine's AITER or of an earlier test is seen."""
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # of ~/.aiter
    loader = needs_loader()
    monkeypatch.setenv("ROCADE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache" / "native").mkdir(mode=0o700, parents=True)
    shutil.copy(loader, tmp_path / "cache" / "native")  # which is not what these tests wait for
    _variants.forget()
    yield tmp_path / "cache"
    _variants.forget()


@pytest.fixture
def site(tmp_path: Path, clean: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """AITER 0.1.20, whose compiler makes a library that computes the right numbers on the CPU."""
    found = install(tmp_path / "site", clean)
    found.behave(stub.compiled(VERSION, ("COMPUTE",)))
    monkeypatch.syspath_prepend(found.folder)
    return found

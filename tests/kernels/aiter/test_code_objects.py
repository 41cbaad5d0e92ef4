"""AITER's code objects are found where an installation has them, and read only if they are the known ones."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from rocade_kernels.aiter import code_objects
from rocade_kernels.aiter.errors import LibraryError, LibraryMissingError

CONTENT = b"a code object"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def install(folder: Path, target: str = "gfx942", product: str = "MI300") -> Path:
    path = folder / target / "fmha_v3_fwd" / product / "fwd.co"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return path


def read() -> bytes:
    return code_objects.read("gfx942", "MI300", "fwd.co", SHA256)


def test_the_variable_names_the_folder_of_all_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path)
    monkeypatch.setenv("AITER_ASM_DIR", f"{tmp_path}/")
    assert read() == CONTENT


def test_or_that_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.setenv("AITER_ASM_DIR", f"{tmp_path}/gfx942/")
    assert read() == CONTENT


@pytest.mark.parametrize("sources", ["aiter_meta/hsa", "hsa"])
def test_an_installed_package_has_them_beside_it(
    sources: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`aiter_meta` in a wheel; a checkout's own folder. The package is not imported."""
    monkeypatch.delenv("AITER_ASM_DIR", raising=False)
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path / sources)
    assert read() == CONTENT


def test_the_variable_replaces_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path / "hsa")
    monkeypatch.setenv("AITER_ASM_DIR", str(tmp_path / "nothing"))
    with pytest.raises(LibraryMissingError, match=r"nothing/gfx942/fmha_v3_fwd.*AITER_ASM_DIR"):
        read()


def test_nothing_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AITER_ASM_DIR", raising=False)
    monkeypatch.setattr(code_objects, "package_folder", lambda: None)
    with pytest.raises(LibraryMissingError, match="pip install --no-deps amd-aiter"):
        read()


def test_other_content_is_unknown_also_after_it_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = install(tmp_path)
    monkeypatch.setenv("AITER_ASM_DIR", str(tmp_path))
    assert read() == CONTENT
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(1, 1))
    with pytest.raises(LibraryError, match="what this one does is unknown"):
        read()


def test_a_file_that_others_can_write_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path).chmod(0o666)
    monkeypatch.setenv("AITER_ASM_DIR", str(tmp_path))
    with pytest.raises(LibraryError, match=r"is writable by others.*name that in AITER_ASM_DIR"):
        read()

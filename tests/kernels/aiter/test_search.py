"""Where AITER's libraries are looked for, and that none is taken from where others can write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocade_kernels.aiter import search
from rocade_kernels.aiter.errors import LibraryError, LibraryMissingError
from rocade_kernels.aiter.names import Family, VariantKey, file_name

KEY = VariantKey(family=Family.MHA_FWD, dtype="bf16", needs_mask=True, has_lse=False)
VERSION = "0.1.20"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders in each place that is searched, no file in any."""
    found = {name: tmp_path / name for name in ("jit", "first", "second", "extra", "home/.aiter/jit")}
    found["package"] = tmp_path / "site" / "aiter" / "jit"
    for folder in found.values():
        folder.mkdir(parents=True)
    (tmp_path / "site" / "aiter" / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AITER_JIT_DIR", raising=False)
    monkeypatch.setenv("FLASHINFER_AITER_VARIANT_DIR", f"{found['first']}::{found['second']}")
    return found


def put(folder: Path) -> Path:
    path = folder / file_name(KEY, VERSION)
    path.write_bytes(b"a library")
    path.chmod(0o644)
    return path


def test_the_order_of_folders(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    rest = (places["first"], places["second"], places["extra"])
    extra = [places["extra"]]
    assert search.folders(extra) == (places["package"], places["home/.aiter/jit"], *rest)
    monkeypatch.setenv("AITER_JIT_DIR", str(places["jit"]))
    assert search.folders(extra) == (places["jit"], *rest), "it takes the place of both defaults"


def test_the_first_that_is_there_is_taken(places: dict[str, Path]) -> None:
    for name in ("extra", "second", "first", "home/.aiter/jit", "package"):
        path = put(places[name])
        assert search.find(KEY, VERSION, [places["extra"]]) == path


def test_a_missing_library_is_told_as_a_recipe(places: dict[str, Path]) -> None:
    with pytest.raises(LibraryMissingError) as caught:
        search.find(KEY, VERSION, [places["extra"]])
    text = str(caught.value)
    assert "mha_fwd_bf16_nbias_mask_nlse_ndropout_nqscale.so is in none of these folders" in text
    for name in ("package", "home/.aiter/jit", "first", "second", "extra"):
        assert f"  {places[name]}\n" in text
    assert "aiter.ops.mha.mha_fwd(" in text
    assert "is_causal=True" in text
    assert "return_softmax_lse=False" in text
    assert "torch.bfloat16" in text
    assert "rocade prebuild-aiter" in text


@pytest.mark.parametrize(
    ("what", "mode"),
    [
        ("file", 0o646),
        ("file", 0o664),
        ("folder", 0o757),
        ("folder", 0o775),
        ("folder", 0o1777),
        ("above", 0o777),
    ],
)
def test_nothing_is_taken_from_where_others_can_write(
    what: str, mode: int, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_is_private", lambda group: False)
    path = put(places["first"])
    place = {"file": path, "folder": path.parent, "above": path.parent.parent}[what]
    place.chmod(mode)
    with pytest.raises(LibraryError, match=rf"{place} is writable by .*cannot be trusted"):
        search.find(KEY, VERSION)


def test_a_folder_on_the_way_may_be_one_like_tmp(places: dict[str, Path]) -> None:
    path = put(places["first"])
    path.parent.parent.chmod(0o1777)
    assert search.find(KEY, VERSION) == path


def test_a_private_group_may_write(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_is_private", lambda group: group == os.getgid())
    path = put(places["first"])
    path.chmod(0o664)
    path.parent.chmod(0o775)
    assert search.find(KEY, VERSION) == path


def test_files_of_other_users_are_not_taken(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(places["first"])
    if os.getuid() == 0:
        os.chown(path, 12345, -1)
        owner = 12345
    else:
        owner = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(LibraryError, match=f"belongs to user {owner}"):
        search.find(KEY, VERSION)


def test_a_link_is_judged_by_what_it_leads_to_and_by_where_it_lies(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_is_private", lambda group: False)
    real = put(places["second"])
    link = places["first"] / real.name
    link.symlink_to(real)
    assert search.find(KEY, VERSION) == link
    for folder in (places["second"], places["first"]):
        folder.chmod(0o777)
        with pytest.raises(LibraryError, match=f"{folder} is writable by others"):
            search.find(KEY, VERSION)
        folder.chmod(0o755)

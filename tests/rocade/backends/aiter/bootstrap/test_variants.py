"""A library is used only when it is right: real checks of real libraries, kept by their bytes."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
import torch
from tests.kernels.aiter import stub
from tests.rocade.backends.aiter.bootstrap.site import VERSION, Site

from rocade import _device
from rocade.backends.aiter import bootstrap
from rocade.backends.aiter.bootstrap import BootstrapError, Outcome, _store, _variants
from rocade_kernels.aiter.errors import LibraryError
from rocade_kernels.aiter.names import Family, VariantKey, file_name

CPU = torch.device("cpu")
TARGET = _device.target(CPU)
DENSE = VariantKey(family=Family.MHA_FWD, dtype="bf16", needs_mask=True, has_lse=True)
RAGGED = VariantKey(family=Family.MHA_VARLEN_FWD, dtype="bf16", needs_mask=False, has_lse=True)
PAGED = VariantKey(family=Family.MHA_BATCH_PREFILL, dtype="fp16", needs_mask=True, has_lse=True)


def ensure(key: VariantKey = DENSE, page_size: int = 0) -> Path:
    return bootstrap.ensure(key, CPU, head_dim=64, page_size=page_size)


def refusals(key: VariantKey = DENSE, page_size: int = 0) -> list[str]:
    found = bootstrap.refusals(key, TARGET, head_dim=64, page_size=page_size)
    return [f"{reason.code}: {reason.text}" for reason in found]


def place(site: Site, key: VariantKey, *defines: str) -> Path:
    """A library in the folder where AITER itself builds, as of an earlier run of the user's."""
    return stub.install(site.folder / "aiter" / "jit", key, VERSION, defines)


def checks(site: Site) -> int:
    """Verdicts on disk."""
    return len(list((site.cache / "aiter" / "verdicts").glob("*.json")))


@pytest.mark.parametrize(
    ("family", "dtype", "mask", "lse", "cap", "page_size"),
    [
        (Family.MHA_FWD, "bf16", False, False, False, 0),
        (Family.MHA_FWD, "fp16", True, True, False, 0),
        (Family.MHA_VARLEN_FWD, "bf16", True, True, True, 0),
        (Family.MHA_VARLEN_FWD, "fp16", False, False, False, 0),
        (Family.MHA_BATCH_PREFILL, "bf16", True, True, False, 1),
        (Family.MHA_BATCH_PREFILL, "fp16", False, True, True, 16),
        (Family.MHA_BATCH_PREFILL, "bf16", True, False, True, 1024),
    ],
)
def test_a_right_library_passes(
    site: Site, family: Family, dtype: str, mask: bool, lse: bool, cap: bool, page_size: int
) -> None:
    key = VariantKey(family=family, dtype=dtype, needs_mask=mask, has_lse=lse, has_logits_cap=cap)
    path = place(site, key, "COMPUTE")
    assert ensure(key, page_size) == path
    assert refusals(key, page_size) == []
    assert site.started() == []


def test_a_missing_one_is_built_then_checked_and_both_only_once(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bootstrap.found(DENSE, CPU, head_dim=64) is None
    assert not bootstrap.is_there(DENSE, TARGET, head_dim=64)
    path = ensure()
    assert path.is_relative_to(site.cache / "aiter" / "libraries")
    assert [line for line in capsys.readouterr().err.splitlines() if "check of" in line] == [
        f"rocade: check of {path.stem} at head size 64 against fp64"
    ]
    _variants.forget()  # as another process
    assert bootstrap.found(DENSE, CPU, head_dim=64) == path
    assert bootstrap.is_there(DENSE, TARGET, head_dim=64)
    assert ensure() == path
    assert capsys.readouterr().err == ""
    assert len(site.started()) == checks(site) == 1


def test_another_head_size_is_checked_by_itself(site: Site) -> None:
    place(site, DENSE, "COMPUTE")
    ensure()
    bootstrap.ensure(DENSE, CPU, head_dim=40)
    assert checks(site) == 2


def test_threads_that_ask_at_once_get_one_build(site: Site) -> None:
    site.behave(stub.compiled(VERSION, ("COMPUTE",)), seconds=1)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(ensure())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == len(site.started()) == 1


def test_one_that_ignores_the_window_is_a_defect_of_this_machine(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place(site, DENSE, "COMPUTE", "IGNORE_WINDOW")
    with pytest.raises(BootstrapError, match=r"is not used: .*window 31: .* elements of the output are off"):
        ensure()
    assert "it is not used. Remove" in capsys.readouterr().err
    (defect,) = bootstrap.defects()
    assert (defect.library, defect.outcome, defect.head_dim) == (path.name, Outcome.WRONG, 64)
    assert "causal: " not in defect.detail  # with the causal mask alone it is right
    _variants.forget()  # as another process
    assert [text.partition(":")[0] for text in refusals()] == ["defect"]
    assert not bootstrap.is_there(DENSE, TARGET, head_dim=64)
    assert bootstrap.found(DENSE, CPU, head_dim=64) is None
    with pytest.raises(BootstrapError, match="is not used"):
        ensure()
    assert checks(site) == 1
    assert site.started() == []


@pytest.mark.parametrize(("key", "page_size"), [(DENSE, 0), (RAGGED, 0), (PAGED, 1024)], ids=str)
def test_one_that_lets_memory_without_keys_reach_a_result_is_wrong(
    key: VariantKey, page_size: int, site: Site
) -> None:
    """A tail of a tile times 0 is NaN where that memory holds NaN, as unused slots of a cache may."""
    place(site, key, "COMPUTE", "LEAK")
    with pytest.raises(BootstrapError, match=r"is not used: .* elements of the output are off"):
        ensure(key, page_size)
    _variants.forget()
    place(site, key, "COMPUTE")
    assert ensure(key, page_size).is_file()


def test_other_bytes_under_the_name_of_a_wrong_one_are_checked_anew(site: Site) -> None:
    place(site, DENSE, "COMPUTE", "IGNORE_WINDOW")
    with pytest.raises(BootstrapError):
        ensure()
    _variants.forget()
    place(site, DENSE, "COMPUTE")
    assert refusals() == []
    assert ensure().is_file()
    assert checks(site) == 2


def test_a_right_library_under_the_name_of_another_variant_is_checked_as_that(site: Site) -> None:
    path = place(site, DENSE, "COMPUTE")
    ensure()
    cap = VariantKey(
        family=Family.MHA_VARLEN_FWD, dtype="bf16", needs_mask=True, has_lse=True, has_logits_cap=True
    )
    shutil.copy(path, path.with_name(file_name(cap, VERSION)))
    assert ensure(cap).is_file()
    assert checks(site) == 2


def test_one_that_changes_while_it_is_checked_has_no_verdict(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place(site, DENSE, "COMPUTE")

    def changed(*_: object) -> tuple[Outcome, str]:
        place(site, DENSE, "COMPUTE", "IGNORE_WINDOW")
        return Outcome.RIGHT, ""

    monkeypatch.setattr(_variants._check, "_outcome", changed)
    with pytest.raises(BootstrapError, match=f"{path.name} changed while it was checked"):
        ensure()
    assert checks(site) == 0


def test_a_verdict_that_was_removed_or_damaged_is_made_again(site: Site) -> None:
    place(site, DENSE, "COMPUTE", "IGNORE_WINDOW")
    for content in (None, b"", b'{"outcome": "right"}', b'{"check": 1, "outcome": "right"}'):
        with pytest.raises(BootstrapError, match="is not used"):
            ensure()
        (verdict,) = (site.cache / "aiter" / "verdicts").glob("*.json")
        if content is None:
            verdict.unlink()
        else:
            verdict.write_bytes(content)
        _variants.forget()
        assert bootstrap.defects() == ()


def test_one_that_crashes_takes_down_its_check_alone(site: Site) -> None:
    place(site, DENSE, "COMPUTE", "CRASH")
    with pytest.raises(BootstrapError, match=r"is not used: .* crashed .*ended by SIGABRT"):
        ensure()
    assert [defect.outcome for defect in bootstrap.defects()] == [Outcome.CRASHED]


def test_one_that_leaves_its_results_as_they_were_is_wrong(site: Site) -> None:
    place(site, DENSE)  # answers 0, and computes nothing
    with pytest.raises(BootstrapError, match=r"causal: \d+ of \d+ .*worst by inf.*LSE is off"):
        ensure()


def test_a_page_size_without_kernel_is_gathered(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    place(site, PAGED, "COMPUTE", "PAGE_SIZES={1,16}")
    assert bootstrap.native_page(PAGED, CPU, head_dim=64, page_size=16)
    assert not bootstrap.native_page(PAGED, CPU, head_dim=64, page_size=1024)
    assert "gathered" not in capsys.readouterr().err
    assert bootstrap.defects() == ()
    _variants.forget()
    assert not bootstrap.native_page(PAGED, CPU, head_dim=64, page_size=1024)
    assert checks(site) == 2


def test_strict_raises_where_it_would_be_gathered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    place(site, PAGED, "COMPUTE", "PAGE_SIZES={1,16}")
    monkeypatch.setenv("FLASHINFER_AITER_STRICT", "1")
    assert bootstrap.native_page(PAGED, CPU, head_dim=64, page_size=16)
    with pytest.raises(BootstrapError, match="pages of 1024: no kernel"):
        bootstrap.native_page(PAGED, CPU, head_dim=64, page_size=1024)


def test_a_wrong_kernel_for_pages_is_told_once_and_gathered(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    place(site, PAGED, "COMPUTE", "IGNORE_WINDOW")
    for _ in range(2):
        assert not bootstrap.native_page(PAGED, CPU, head_dim=64, page_size=16)
    said = [line for line in capsys.readouterr().err.splitlines() if "are gathered" in line]
    assert len(said) == 1
    assert "elements of the output are off" in said[0]


def test_no_plan_builds_when_the_user_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_AITER_BUILD", "0")
    (reason,) = refusals()
    assert reason.startswith(
        "absent: mha_fwd_bf16_nbias_mask_lse_ndropout_nqscale.so is not there, and ROCADE"
    )
    with pytest.raises(BootstrapError, match=r"(?s)import torch, aiter\.ops\.mha.*ROCADE_AITER_BUILD is 0"):
        ensure()
    assert site.started() == []
    monkeypatch.setenv("ROCADE_AITER_BUILD", "1")
    assert refusals() == []
    assert ensure().is_file()


def test_a_failed_build_is_told_with_the_recipe_and_not_tried_again(site: Site) -> None:
    site.behave(Path("/nowhere"), exit=1)
    for _ in range(2):
        with pytest.raises(
            BootstrapError, match=r"(?s)no such instruction.*in none of these folders.*import t"
        ):
            ensure()
    assert [text.partition(":")[0] for text in refusals()] == ["build"]
    assert len(site.started()) == 1
    _variants.forget()  # another process tries
    site.behave(stub.compiled(VERSION, ("COMPUTE",)))
    assert ensure().is_file()


def test_without_the_package_a_missing_library_is_refused_beforehand(
    clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCADE_AITER_VERSION", VERSION)
    (reason,) = refusals()
    assert "the package aiter, which builds it, is not installed" in reason


def test_a_damaged_library_of_the_users_is_named_and_left_alone(site: Site) -> None:
    path = place(site, DENSE, "COMPUTE")
    os.truncate(path, 5000)
    with pytest.raises(LibraryError, match=rf"{path.name} is truncated.*remove it"):
        ensure()
    (reason,) = refusals()
    assert "is truncated" in reason
    assert path.stat().st_size == 5000
    assert not bootstrap.is_there(DENSE, TARGET, head_dim=64)


def test_a_library_of_another_version_is_named(site: Site) -> None:
    path = site.folder / "aiter" / "jit" / file_name(DENSE, VERSION)
    shutil.copy(stub.compiled("0.1.7.post2.dev18", ("COMPUTE",)), path)
    with pytest.raises(LibraryError, match=r"does not export .*another AITER version"):
        ensure()


def test_a_library_that_others_can_write_is_refused(site: Site) -> None:
    path = place(site, DENSE, "COMPUTE")
    path.chmod(0o666)
    with pytest.raises(LibraryError, match="writable by others"):
        ensure()


def test_a_check_that_fails_by_itself_is_no_verdict(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    place(site, DENSE, "COMPUTE")
    monkeypatch.setattr(_variants._check, "JOB", "no.such.module")
    with pytest.raises(BootstrapError, match=r"cannot be checked: .*ModuleNotFoundError"):
        ensure()
    assert bootstrap.defects() == ()
    assert checks(site) == 0


def test_a_cache_that_cannot_be_written_is_an_error_with_the_recipe(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_variants._build.shutil, "copy2", full)
    (site.folder / "aiter" / "jit" / "module_aiter_core.so").touch()
    with pytest.raises(BootstrapError, match=r"(?s)No space left on device.*import torch"):
        ensure()
    assert [text.partition(":")[0] for text in refusals()] == ["build"]


def test_libraries_of_different_toolchains_lie_apart() -> None:
    tags = {
        _store.tag("gfx942", "0.1.20"),
        _store.tag("gfx950", "0.1.20"),
        _store.tag("gfx942", "0.1.14+rocm7.2"),
    }
    assert len(tags) == 3
    assert all(set(tag) <= set("abcdefghijklmnopqrstuvwxyz0123456789.+-_") for tag in tags)


def test_a_fork_in_the_middle_of_a_build_does_not_wait_for_it(site: Site) -> None:
    wanted = _variants._wanted(DENSE, TARGET, 64, 0)
    with _variants._known.lock(wanted):
        child = os.fork()
        if child == 0:
            free = _variants._known.lock(wanted).acquire(timeout=5)
            os._exit(0 if free else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0

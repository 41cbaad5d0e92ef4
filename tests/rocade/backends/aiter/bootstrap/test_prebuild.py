"""`rocade prebuild-aiter` builds what plans will ask for, tells what it finds, fails when that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.kernels.aiter import stub
from tests.rocade.backends.aiter.bootstrap.site import VERSION, Site

from rocade import _device, cli
from rocade.backends.aiter import bootstrap
from rocade.backends.aiter.bootstrap import _variants
from rocade_kernels.aiter.names import Family, VariantKey

CPU = torch.device("cpu")
DENSE = "mha_fwd_bf16_nbias_mask_lse_ndropout_nqscale"
PREFILL = "mha_batch_prefill_fp16_nlogits_nbias_nmask_lse_ndropout_nqscale_nsink"


def run(*words: str, device: str = "cpu") -> int:
    """The command, on the CPU, with one small head size."""
    return cli.main(["prebuild-aiter", "--device", device, "--head-dim", "16", *words])


def test_after_it_a_plan_only_looks_things_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--family", "mha_fwd", "--dtype", "bf16", "--mask", "yes", "--jobs", "5") == 0
    assert [(found["name"], found["MAX_JOBS"]) for found in site.finished()] == [(DENSE, "5")]
    _variants.forget()  # as the serving process, which must not start a child
    monkeypatch.setattr(_variants._build._job.subprocess, "Popen", None)
    monkeypatch.setenv("ROCADE_AITER_BUILD", "0")
    key = VariantKey(family=Family.MHA_FWD, dtype="bf16", needs_mask=True, has_lse=True)
    assert bootstrap.refusals(key, _device.target(CPU), head_dim=16) == ()
    assert bootstrap.ensure(key, CPU, head_dim=16).stem == DENSE


def test_it_builds_even_where_no_plan_may(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_AITER_BUILD", "0")
    assert run("--family", "mha_fwd", "--dtype", "bf16", "--mask", "yes") == 0
    assert len(site.finished()) == 1


def test_the_list_tells_the_state_of_each_and_builds_nothing(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    jit = site.folder / "aiter" / "jit"
    keys = [
        VariantKey(family=Family.MHA_FWD, dtype=dtype, needs_mask=mask, has_lse=True)
        for dtype in ("fp16", "bf16")
        for mask in (True, False)
    ]
    right = stub.install(jit, keys[0], VERSION, ("COMPUTE",))
    wrong = stub.install(jit, keys[1], VERSION)
    unknown = stub.install(jit, keys[2], VERSION, ("COMPUTE",))
    bootstrap.ensure(keys[0], CPU, head_dim=16)
    with pytest.raises(bootstrap.BootstrapError):
        bootstrap.ensure(keys[1], CPU, head_dim=16)
    capsys.readouterr()
    assert run("--family", "mha_fwd", "--list") == 0
    assert [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()] == [
        f"right, {right}",
        f"wrong, {wrong}",
        f"not checked, {unknown}",
        "not there",
    ]
    assert site.started() == []


def test_a_list_of_all_has_each_library_that_plans_ask_for(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--list") == 0
    plain = [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert len(set(plain)) == 3 * 2 * 2
    assert len(plain) == 4 + 4 + 4 * 3  # the last with each page size
    assert run("--list", "--soft-cap") == 0
    capped = {line.partition(",")[0] for line in capsys.readouterr().out.splitlines()}
    assert len(capped) == (1 + 2 + 2) * 2 * 2
    assert capped > set(plain)


def test_a_page_size_without_kernel_is_no_failure_and_a_wrong_library_is(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--family", "mha_batch_prefill", "--dtype", "fp16", "--mask", "no", "--page-size", "16")
    site.behave(stub.compiled(VERSION, ("COMPUTE", "PAGE_SIZES={1}")))
    assert run(*words) == 0
    name = f"{PREFILL}, head size 16, pages of 16"
    assert f"{name}: no kernel, so pages are gathered\n" in capsys.readouterr().out
    for path in (site.cache / "aiter" / "libraries").glob("**/*.so"):
        path.unlink()
    _variants.forget()
    site.behave(stub.compiled(VERSION))
    assert run(*words) == 1
    assert f"{name}: {site.cache}" in capsys.readouterr().out


def test_it_goes_on_after_a_failure(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.behave(Path("/nowhere"), exit=1)
    assert run("--family", "mha_fwd", "--dtype", "bf16") == 1
    assert len(site.started()) == 2
    assert capsys.readouterr().out.count("no such instruction") == 2


def test_without_aiter_or_its_gpu_it_says_so(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 1
    assert "amd-aiter is not installed" in capsys.readouterr().err
    assert run(device="cuda:99") == 1
    said = capsys.readouterr().err
    assert said.startswith("rocade prebuild-aiter: no device cuda:99 here (")
    assert "on a machine with the GPU" in said


@pytest.mark.parametrize(
    "words", [("--jobs", "0"), ("--head-dim", "-1"), ("--page-size", "0"), ("--dtype", "fp8")]
)
def test_a_wrong_word_is_an_error(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        run(*words)
    assert done.value.code == 2
    assert words[0] in capsys.readouterr().err

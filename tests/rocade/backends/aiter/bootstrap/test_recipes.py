"""Recipes against AITER's Python functions: they know every keyword, and build the library that is expected.

Functions and generator of names are those of the wheel on PyPI, or 0.1.20's as far as they are known. They
run in a child process, as in a build.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from tests import needs
from tests.emulator.aiter import wheel
from tests.kernels.aiter import stub
from tests.rocade.backends.aiter.bootstrap.site import VERSION, Site, install

from rocade.backends.aiter import bootstrap
from rocade_kernels.aiter import names, recipes, versions
from rocade_kernels.aiter.names import Family, VariantKey

WHEEL = "0.1.7.post2.dev18"
FAMILIES = (Family.MHA_FWD, Family.MHA_VARLEN_FWD, Family.MHA_BATCH_PREFILL)
PROGRAM = """
import json, sys
from rocade.backends.aiter.bootstrap import _build_job
for recipe in json.load(sys.stdin):
    _build_job.run(recipe, "cpu")
"""
KEYS = [
    VariantKey(family=family, dtype=dtype, needs_mask=mask, has_lse=lse, has_logits_cap=cap)
    for family, dtype, mask, lse, cap in itertools.product(
        FAMILIES, ("fp16", "bf16"), (True, False), (True, False), (True, False)
    )
    if not (cap and family is Family.MHA_FWD)
]


@pytest.fixture(params=[WHEEL, VERSION])
def aiter(request: pytest.FixtureRequest, tmp_path: Path, clean: Path) -> tuple[str, Site]:
    """A version, and an installed package with its functions."""
    version: str = request.param
    path = wheel() if version == WHEEL else None
    if isinstance(path, str):
        needs.missing(path)
    site = install(tmp_path / "site", clean, version, path)
    site.behave(stub.compiled(version))
    return version, site


def test_each_recipe_makes_aiter_build_the_library_of_its_variant(
    aiter: tuple[str, Site], tmp_path: Path
) -> None:
    version, site = aiter
    pages = versions.require(version).page_sizes
    found = [
        recipes.recipe(key, version, head_dim=64, page_size=size).as_data()
        for key in KEYS
        for size in (pages if key.family is Family.MHA_BATCH_PREFILL else (None,))
    ]
    process = site.program(PROGRAM, AITER_JIT_DIR=str(tmp_path / "jit"))
    _, err = process.communicate(json.dumps(found), timeout=300)
    assert process.returncode == 0, err
    expected = {names.file_name(key, version) for key in KEYS}
    assert {path.name for path in (tmp_path / "jit").glob("*.so")} == expected
    assert len(expected) == len(KEYS) == len(site.started())


def test_the_text_of_a_recipe_is_a_program_that_builds_it(aiter: tuple[str, Site], tmp_path: Path) -> None:
    version, site = aiter
    for key in (KEYS[0], KEYS[10], KEYS[-1]):
        text = recipes.recipe(key, version).as_text().replace('device="cuda"', 'device="cpu"')
        process = site.program(text, AITER_JIT_DIR=str(tmp_path / "jit"))
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert (tmp_path / "jit" / names.file_name(key, version)).is_file()


def test_a_library_is_built_checked_and_used_with_the_functions_of_a_version(
    aiter: tuple[str, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, site = aiter
    site.behave(stub.compiled(version, ("COMPUTE",)))
    monkeypatch.syspath_prepend(site.folder)
    for key, page_size in ((KEYS[0], 0), (KEYS[-1], 1)):
        path = bootstrap.ensure(key, torch.device("cpu"), head_dim=64, page_size=page_size)
        assert path == site.cache / "aiter" / "libraries" / path.parent.name / names.file_name(key, version)
        assert f"aiter{version}" in path.parent.name
    assert len(site.finished()) == 2


def test_a_wrong_keyword_would_be_noticed(aiter: tuple[str, Site], tmp_path: Path) -> None:
    version, site = aiter
    data = recipes.recipe(KEYS[0], version).as_data()
    kwargs = data["kwargs"]
    assert isinstance(kwargs, dict)
    kwargs["causal"] = kwargs.pop("is_causal")
    process = site.program(PROGRAM, AITER_JIT_DIR=str(tmp_path / "jit"))
    _, err = process.communicate(json.dumps([data]), timeout=120)
    assert process.returncode != 0
    assert "TypeError" in err
    assert site.started() == []

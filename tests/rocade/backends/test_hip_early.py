"""Which launches may start before the kernel in front of them has ended: the merge, where a target can."""

from __future__ import annotations

import pytest
import torch
from tests.rocade.backends.idle_driver import Driver
from tests.rocade.backends.test_hip_repeats import Work

from arch_caps import TARGETS, Feature, Level
from rocade.backends.hip import _dlpack
from rocade.backends.hip._attention import AttentionPlan

TARGET_NAMES = ("gfx942", "gfx950", "sm_80", "sm_90")
CASES = ("paged", "ragged", "decode, graph", "cascade")


def check_launches(driver: Driver) -> None:
    """One attention and one merge, and which of them may start early."""
    runtime = driver.emulation.device._loaded.runtime  # type: ignore[attr-defined]
    names = [name for name, *_ in driver.taken()]
    assert [name.split("-")[0] for name in names] == ["attention", "merge_partials"]
    lets = TARGETS[runtime.target].level(Feature.EARLY_START) is Level.NATIVE
    assert driver.early == (names[1:] if lets else [])
    driver.early.clear()


@pytest.mark.parametrize("target", TARGET_NAMES)
@pytest.mark.parametrize("case", CASES)
def test_the_merge_alone_may_start_early(case: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run that goes the ordinary way, and in one that is repeated natively."""
    driver = Driver(target)
    with driver.emulation, torch.inference_mode():
        work = Work(case)
        work.wrapper.run(*work.inputs(), **work.results(lse=True, state=False))
        check_launches(driver)
        if not _dlpack.read_address():
            pytest.skip("this torch has no DLPack exchange table")
        monkeypatch.delattr(AttentionPlan, "run")
        work.wrapper.run(*work.inputs(), **work.results(lse=True, state=False))
        check_launches(driver)

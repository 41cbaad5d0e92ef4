"""The same sources for NVIDIA: they compile, move 16 bytes an access, and use no local memory."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rocade_kernels.build import INSTANCES, BuildError, Instance, code

MOVERS = ("append_paged_kv_cache", "attention_sum", "merge_state", "merge_states")
PTX = [instance for instance in INSTANCES if instance.is_ptx and instance.kernel in MOVERS]


def text(instance: Instance) -> str:
    try:
        return code(instance).image.decode()
    except BuildError as error:
        if "ziglang" in str(error):
            pytest.skip(str(error))
        raise


def test_there_are_instances_for_both_generations() -> None:
    assert {(i.kernel, i.target) for i in PTX} == {(k, t) for k in MOVERS for t in ("sm_80", "sm_90")}


@pytest.mark.parametrize("instance", PTX, ids=lambda instance: instance.name)
def test_accesses_are_16_bytes_wide(instance: Instance) -> None:
    found = text(instance)
    assert re.search(r"\bld\.global\.v4\.[bu]32\b", found)
    assert re.search(r"\bst\.global\.v4\.[bu]32\b", found)
    assert ".local" not in found


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas, a part of CUDA, is not installed")
@pytest.mark.parametrize("instance", PTX, ids=lambda instance: instance.name)
def test_no_register_is_spilled(instance: Instance, tmp_path: Path) -> None:
    source = tmp_path / "kernel.ptx"
    source.write_text(text(instance))
    command = ["ptxas", f"-arch={instance.target}", "-v", str(source), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr

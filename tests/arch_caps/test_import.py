"""arch_caps imports nothing but the standard library, whatever the environment looks like."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.arch_caps.helpers import ROOT

CODE = """
import sys
sys.path.insert(0, {path!r})
import arch_caps
from arch_caps import export
loaded = {{name.partition(".")[0] for name in sys.modules}}
outside = loaded - set(sys.stdlib_module_names) - {{"__main__", "arch_caps"}}
assert not outside, outside
request = arch_caps.Request(
    op=arch_caps.Op.CASCADE, q_dtype=arch_caps.DType.FP32, kv_dtype=arch_caps.DType.FP32,
    o_dtype=arch_caps.DType.FP32, num_qo_heads=8, num_kv_heads=2, head_dim_qk=64, head_dim_vo=64,
)
assert arch_caps.reasons(request, backend="torch", target="cpu") == []
print(len(arch_caps.ROWS))
"""


@pytest.mark.parametrize("override", [None, "all", "\udce9,\n"])
def test_import_alone(tmp_path: Path, override: str | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "ROCADE_ALLOW_KNOWN_BAD"}
    if override is not None:
        environment["ROCADE_ALLOW_KNOWN_BAD"] = override
    code = CODE.format(path=str(ROOT / "arch_caps" / "src"))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40

"""A folder with an installed `aiter` for tests, whose compiler copies libraries; children import it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSION = "0.1.20"
# A shell starts what runs in its background with SIGINT ignored, and that is inherited.
INTERRUPTIBLE = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
NEEDED_BY_WHEEL = {
    "jit/utils/chip_info.py": "def get_gfx():\n    return 'gfx942'\n",
    "jit/utils/torch_guard.py": "def torch_compile_guard(**_):\n    return lambda function: function\n",
    "utility/dtypes.py": "from torch import bfloat16 as bf16, float16 as fp16, float8_e4m3fnuz as fp8\n",
}


@dataclass(frozen=True)
class Site:
    """The folder, which is also the working folder of programs that tests start."""

    folder: Path
    cache: Path

    def behave(self, library: Path, **changes: Any) -> None:
        """What the compiler does from now on: seconds, exit, bytes (of a truncated file), name, after."""
        plain: dict[str, Any] = {"seconds": 0, "exit": 0, "bytes": 0, "name": "", "after": ""}
        text = json.dumps({**plain, "library": str(library), **changes})
        (self.folder / "behaviour.json").write_text(text)

    def started(self) -> list[tuple[str, int]]:
        """Runs of the compiler that began: what it compiled, and its process."""
        return [(name, int(process)) for name, process in map(str.split, self._lines("started"))]

    def finished(self) -> list[dict[str, str | None]]:
        """Runs that came to their end: the name, and what they found in the environment."""
        return [json.loads(line) for line in self._lines("finished")]

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def program(self, code: str, **environment: str) -> subprocess.Popen[str]:
        """Start a Python program that sees this `aiter` and this cache, and that SIGINT interrupts."""
        path = os.pathsep.join([str(self.folder), *sys.path])
        settings = {"PYTHONPATH": path, "ROCADE_CACHE_DIR": str(self.cache), **environment}
        return subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE + code],
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def install(folder: Path, cache: Path, version: str = VERSION, wheel: Path | None = None) -> Site:
    """Make the folder: functions of 0.1.20, or those of a wheel."""
    package = folder / "aiter"
    for name in ("", "jit", "jit/utils", "ops", "utility"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    shutil.copy(HERE / "core.py", package / "jit" / "core.py")
    shutil.copy(HERE / "compiler.py", package / "jit" / "compiler.py")
    if wheel is None:
        shutil.copy(HERE / "mha_0_1_20.py", package / "ops" / "mha.py")
    else:
        with zipfile.ZipFile(wheel) as archive:
            (package / "ops" / "mha.py").write_bytes(archive.read("aiter/ops/mha.py"))
        for name, text in NEEDED_BY_WHEEL.items():
            (package / name).write_text(text)
    info = folder / f"amd_aiter-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: amd-aiter\nVersion: {version}\n")
    return Site(folder, cache)

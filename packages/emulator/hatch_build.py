"""Build hook: compiles the core into the wheel. An editable install builds on demand instead."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path(__file__).parent / "src"
sys.path.insert(0, str(SOURCES))

from rocade_emulator import _build  # noqa: E402  the package that is built here is not installed yet


class CoreBuildHook(BuildHookInterface[Any]):
    """Puts one library for each instruction set into the wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """A compiler from PyPI where the machine has none."""
        return [] if any(_build.compilers()) else ["ziglang>=0.14"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the install is editable."""
        if version == "editable":
            return
        self._scratch = tempfile.mkdtemp(prefix="rocade-emulator-")
        build_data["pure_python"] = False
        tag = "linux_x86_64" if _build.is_x86() else f"linux_{_build.platform.machine()}"
        for isa in _build.isas():
            library = Path(self._scratch) / _build.file_name(isa)
            compiler = _build.build(library, isa, Path(self._scratch) / "objects")
            if compiler == _build.zig() and _build.is_x86():
                tag = "manylinux_2_28_x86_64"
            build_data["force_include"][str(library)] = f"rocade_emulator/lib/{library.name}"
        build_data["tag"] = f"py3-none-{tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled; the wheel holds it now."""
        if version != "editable":
            shutil.rmtree(self._scratch)

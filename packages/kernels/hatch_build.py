"""hatch's build hook: compiles the native CPU library into the wheel, or beside the sources when editable."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "src"))

from rocade_kernels import _cpu_build, _settings  # noqa: E402


class NativeLibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    """A platform wheel for any Python 3, since the library is reached through ctypes."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The compiler from PyPI where the machine has none, or where it is asked for (portable wheels)."""
        chosen = _settings.CXX.read()
        has_compiler = any(shutil.which(name) for name in ("g++", "clang++"))
        return ["ziglang>=0.14"] if chosen == "zig" or not (chosen or has_compiler) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library; a source distribution never comes here."""
        if self.target_name != "wheel":
            return
        compiler = _cpu_build.build(_cpu_build.SHIPPED)
        self.app.display_info(f"built {_cpu_build.SHIPPED.name} with {compiler}")
        build_data["artifacts"].append("src/rocade_kernels/lib/*.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform_tag(compiler)}"


def _platform_tag(compiler: _cpu_build.Compiler) -> str:
    """Manylinux when the compiler was told an old C library, this machine only otherwise."""
    machine = platform.machine().lower()
    if _cpu_build.ZIG_TARGET in compiler.command:
        _, _, libc = _cpu_build.ZIG_TARGET.rpartition("gnu.")
        return f"manylinux_{libc.replace('.', '_')}_{machine}"
    return f"linux_{machine}"

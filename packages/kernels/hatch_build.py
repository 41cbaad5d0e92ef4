"""hatch's build hook: compiles the native CPU library and the GPU kernels into the wheel.

An editable install gets the CPU library beside its sources; GPU kernels are then built when first used.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "src"))

from rocade_kernels import _cache, _cpu_build, _settings, build  # noqa: E402

ZIGLANG = "ziglang>=0.15,!=0.16.*,!=0.17.0"  # 0.16 crashes on some kernels, 0.17.0 does not link


class NativeCodeHook(BuildHookInterface):  # type: ignore[type-arg]
    """A platform wheel for any Python 3, since native code is reached through ctypes and drivers."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The compiler from PyPI where the machine has none, or where it is asked for (portable wheels)."""
        return [ZIGLANG] if _needs_zig_for_cpu() or _needs_zig_for_gpus() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build; a source distribution never comes here."""
        if self.target_name != "wheel":
            return
        compiler = _cpu_build.build(_cpu_build.SHIPPED)
        self.app.display_info(f"built {_cpu_build.SHIPPED.name} with {compiler}")
        build_data["artifacts"].append("src/rocade_kernels/lib/*.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform_tag(compiler)}"
        if version == "editable":
            self.app.display_info("GPU kernels are not built for an editable install, but when first used")
            return
        self._scratch = Path(tempfile.mkdtemp(prefix="rocade-kernels-"))
        for name, path in _gpu_kernels(self._scratch).items():
            build_data["force_include"][str(path)] = f"rocade_kernels/lib/hip/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled; the wheel holds it now."""
        if version != "editable" and self.target_name == "wheel":
            shutil.rmtree(self._scratch)


def _needs_zig_for_cpu() -> bool:
    chosen = _settings.CXX.read()
    has_compiler = any(shutil.which(name) for name in ("g++", "clang++"))
    return chosen == "zig" or not (chosen or has_compiler)


def _needs_zig_for_gpus() -> bool:
    """Whether some instance has no compiler on this machine."""
    if _settings.HIPCC.read():
        return _settings.HIPCC.read() == "zig"
    for instance in _wanted():
        with contextlib.suppress(_cache.BuildError):
            build.toolchain_for(instance)
            continue
        return True
    return False


def _wanted() -> list[build.Instance]:
    """The instances that the wheel is to hold; `ValueError` for a target that no kernel is built for."""
    known = {instance.target for instance in build.INSTANCES}
    targets = _settings.build_targets()
    if targets is not None and not targets <= known:
        names = f"{', '.join(sorted(targets - known))}; there are {', '.join(sorted(known))}"
        raise ValueError(f"{_settings.BUILD_TARGETS.name} names {names}")
    return [i for i in build.INSTANCES if targets is None or i.target in targets]


def _gpu_kernels(folder: Path) -> dict[str, Path]:
    """Compile the wheel's instances: name in the wheel -> file."""
    store = build.Store(shipped=None)
    return dict(build.write_shipped(store, build.build_all(store, _wanted()).values(), folder))


def _platform_tag(compiler: _cpu_build.Compiler) -> str:
    """Manylinux when the compiler was told an old C library, this machine only otherwise."""
    machine = platform.machine().lower()
    if _cpu_build.ZIG_TARGET in compiler.command:
        _, _, libc = _cpu_build.ZIG_TARGET.rpartition("gnu.")
        return f"manylinux_{libc.replace('.', '_')}_{machine}"
    return f"linux_{machine}"

"""Lets programs that write `import flashinfer` use rocade, without changing them.

    import rocade.flashinfer
    rocade.flashinfer.install()
    import flashinfer  # rocade

Names that rocade lacks can be imported, and are refused with one sentence when they are called. A program
that asks the package metadata for the version of `flashinfer-python` is not served: nothing is put on disk.
"""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType

from rocade import _refused
from rocade._flashinfer_names import API_VERSION, NAMES
from rocade._refused_names import MODULES, OWN_MODULES
from rocade._version import __version__

__all__ = ["install", "is_installed", "uninstall"]

_ROOT = "flashinfer"
_lock = threading.Lock()
_installed: dict[str, ModuleType] = {}


def install() -> None:
    """Put rocade under the name `flashinfer` and its submodules, for this process. Repeating it does nothing.

    Raises:
        RuntimeError: a `flashinfer` that is not rocade's is imported already, so that some names would be its
            own and others rocade's.
    """
    with _lock:
        foreign = [name for name in sys.modules if _is_ours(name) and name not in _installed]
        if foreign:
            raise RuntimeError(
                f"{min(foreign)} is imported already and is not rocade's: call install() before importing it"
            )
        if not _installed:
            _installed.update({_name(path): _module(path) for path in _paths()})
            _attach()
        sys.modules.update(_installed)


def uninstall() -> None:
    """Take the `flashinfer` modules of `install` away again; what was imported from them keeps working."""
    with _lock:
        for name, module in _installed.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        _installed.clear()


def is_installed() -> bool:
    """Whether `import flashinfer` gives rocade in this process."""
    return bool(_installed) and sys.modules.get(_ROOT) is _installed[_ROOT]


class _Facade(ModuleType):
    """One FlashInfer module: FlashInfer's own small helpers, then rocade's names, then refusals."""

    def __init__(self, path: str) -> None:
        super().__init__(_name(path), f"rocade under the name {_name(path)}.")
        self._path = path
        self._real = importlib.import_module(_real_name(path)) if _has_module(path) else None
        self.__version__ = f"{API_VERSION}+rocade.{__version__}"
        for name, value in NAMES.get(path, {}).items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__all__":  # the import system's questions are about this module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if self._real is not None and hasattr(self._real, name):
            return getattr(self._real, name)
        return _refused.attribute(self._path, name, self.__name__)

    def __dir__(self) -> list[str]:
        """Names that can be used, without those that are refused."""
        return sorted({*self.__dict__, *(getattr(self._real, "__all__", ()))})


def _has_module(path: str) -> bool:
    """Whether rocade has a module of this name that users may import."""
    return path == "" or path in OWN_MODULES


def _paths() -> list[str]:
    """FlashInfer's modules, parents first; the empty path is the package itself."""
    paths = {*NAMES, *OWN_MODULES, *MODULES}
    parents = {path.rpartition(".")[0] for path in paths}
    return sorted(paths | parents)


def _name(path: str) -> str:
    return f"{_ROOT}.{path}" if path else _ROOT


def _real_name(path: str) -> str:
    return f"rocade.{path}" if path else "rocade"


def _is_ours(name: str) -> bool:
    return name == _ROOT or name.startswith(f"{_ROOT}.")


def _module(path: str) -> ModuleType:
    """The module for a path, ready for the import system; all are packages, so that any may have modules."""
    module = _Facade(path)
    module.__spec__ = ModuleSpec(module.__name__, loader=None, is_package=True)
    module.__path__ = []
    module.__package__ = module.__name__
    return module


def _attach() -> None:
    """Make each module an attribute of its parent, except where a name of the parent means something else."""
    for name, module in _installed.items():
        parent, _, child = name.rpartition(".")
        if parent and not _is_callable(_installed[parent], child):
            setattr(_installed[parent], child, module)


def _is_callable(parent: ModuleType, child: str) -> bool:
    """Whether `parent.child` is a function: `flashinfer.xqa` is one, and a module too."""
    value = getattr(parent, child, None)
    return callable(value) and not isinstance(value, ModuleType)

"""Finds the code of an instance: shipped in the wheel, else in the cache, else built now and kept there."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocade_kernels import _cache, _settings
from rocade_kernels._cache import LOG, BuildError, CompilerMissingError
from rocade_kernels.build._code_object import ImageError
from rocade_kernels.build._compile import TREE, compile_instance, flags, toolchain_for
from rocade_kernels.build._packed import SUFFIX, Code, pack, unpack
from rocade_kernels.build._sources import Tree
from rocade_kernels.build._toolchain import Toolchain
from rocade_kernels.instances import Instance

MANIFEST = "manifest.json"
CACHE = "hip"  # folder in the cache
SHIPPED = TREE.root / "lib" / "hip"


@dataclass(frozen=True)
class Store:
    """Where code comes from: sources, a folder that a wheel brought, and the user's cache."""

    tree: Tree = TREE
    shipped: Path | None = SHIPPED  # None: only what is built

    def key(self, instance: Instance) -> str:
        """Changes with every source and flag, and with nothing else; `BuildError` for a missing source."""
        told = json.dumps([self.tree.source_hash(instance.kernel), *flags(instance)])
        return hashlib.sha256(told.encode()).hexdigest()

    def code(self, instance: Instance) -> Code:
        """The code of an instance, built when there is none; that takes 0.3 to 3 s and logs one line.

        Raises:
            BuildError: there is none and it cannot be built, or others can write to the cache.
        """
        tried: list[str] = []
        found = self._shipped(instance, tried)
        return found if found is not None else self._own(instance, tried, log=True)

    def built(self, instance: Instance) -> Code:
        """As `code`, but what a wheel brought does not count, and nothing is logged."""
        return self._own(instance, [], log=False)

    def _shipped(self, instance: Instance, tried: list[str]) -> Code | None:
        if self.shipped is None or not (listed := _manifest(self.shipped / MANIFEST)):
            return None
        entry = listed.get(instance.name)
        if entry is None:
            tried.append("the installed wheel does not hold it")
        elif entry[0] != self.key(instance):
            tried.append("what the installed wheel holds was built from other sources")
        else:
            return _read(self.shipped / (instance.name + SUFFIX), instance, tried, entry[1])
        return None

    def _own(self, instance: Instance, tried: list[str], *, log: bool) -> Code:
        key = self.key(instance)[:16]
        try:
            compiler: Toolchain | None = toolchain_for(instance)
        except CompilerMissingError as error:
            compiler = None
            tried.append(str(error))
        suffix = hashlib.sha256(compiler.identity.encode()).hexdigest()[:8] if compiler else "*"
        folder = _folder(tried)
        wanted = f"{instance.name}-{key}-{suffix}{SUFFIX}"
        found = _cached(folder, wanted, instance, tried)
        if found is not None:
            return found
        if compiler is None:
            raise CompilerMissingError(explain(instance, tried))
        with _lock(folder, instance):
            found = _cached(folder, wanted, instance, tried)  # another process may have built it by now
            return found or self._build(instance, compiler, folder and folder / wanted, log=log)

    def _build(self, instance: Instance, compiler: Toolchain, place: Path | None, *, log: bool) -> Code:
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="rocade-") as work:
                out = Path(work) / "image"
                compile_instance(instance, compiler, out, self.tree)
                made = Code.of(instance, out.read_bytes())
        except OSError as error:
            raise BuildError(explain(instance, [f"no folder to compile in: {error}"])) from error
        except BuildError as error:
            raise BuildError(explain(instance, [str(error)])) from error
        if log:
            LOG.warning("built %s with %s in %.1f s", instance.name, compiler, time.monotonic() - began)
        if place is not None:
            _keep(made, place)
        return made


def explain(instance: Instance, tried: list[str]) -> str:
    """Which instance is missing, the two ways to get it, and what was tried."""
    return _cache.missing(
        f"the code of {instance.name}",
        f"clang >= 20 with ld.lld, ROCm's amdclang++, or pip install 'ziglang>=0.17.1' "
        f"({_settings.HIPCC.name} names one)",
        tried,
    )


@functools.lru_cache(maxsize=8)
def _manifest(path: Path) -> dict[str, tuple[str, str]]:
    """What a wheel holds: name of the instance -> key and SHA-256. Empty when there is no such file."""
    try:
        objects = json.loads(path.read_text(encoding="utf-8"))["objects"]
        return {name: (str(entry["key"]), str(entry["sha256"])) for name, entry in objects.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        LOG.warning("%s cannot be read (%s): install the wheel again", path, error)
        return {}


def _read(path: Path, instance: Instance, tried: list[str], expected: str | None = None) -> Code | None:
    """The code in a file. A bad one is told of in one line and then counts as missing."""
    try:
        return unpack(path.read_bytes(), instance, expected)
    except FileNotFoundError:
        return None
    except (ImageError, OSError) as error:
        LOG.warning("%s is not used: %s", path, error)
        tried.append(f"{path} is not used: {error}")
        return None


def _folder(tried: list[str]) -> Path | None:
    """The cache's folder; None where it cannot be made, as on a read-only disk."""
    try:
        return _cache.private_folder(CACHE)
    except OSError as error:
        tried.append(f"the cache cannot be used: {error}")
        return None


def _cached(folder: Path | None, wanted: str, instance: Instance, tried: list[str]) -> Code | None:
    """From the cache. `wanted` is a pattern where there is no compiler: then any compiler's code will do."""
    for path in sorted(folder.glob(wanted)) if folder else ():
        if (found := _read(path, instance, tried)) is not None:
            return found
    return None


@contextlib.contextmanager
def _lock(folder: Path | None, instance: Instance) -> Iterator[None]:
    """One process builds an instance. On a disk that takes no lock file, each does so for itself."""
    with contextlib.ExitStack() as stack:
        if folder is not None:
            with contextlib.suppress(OSError):
                stack.enter_context(_cache.locked(folder / f"{instance.name}.lock"))
        yield


def _keep(code: Code, place: Path) -> None:
    """Put code into the cache. That it cannot be kept is no reason to refuse what was built."""
    try:
        _cache.write_whole(place, pack(code))
    except OSError as error:
        LOG.warning("%s is not kept in the cache: %s", code.instance.name, error)

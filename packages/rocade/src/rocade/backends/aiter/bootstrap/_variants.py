"""The questions that planning asks about a library, and what this process already knows of it."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from arch_caps import Reason
from rocade import _device, _settings
from rocade.backends.aiter.bootstrap import _build, _check, _job, _store, _verdicts
from rocade.backends.aiter.bootstrap._errors import BootstrapError
from rocade.backends.aiter.bootstrap._store import Store
from rocade.backends.aiter.bootstrap._verdicts import Outcome, Verdict
from rocade.backends.aiter.bootstrap._wanted import Means, Wanted
from rocade_kernels import _settings as kernel_settings
from rocade_kernels.aiter import recipes, search, versions
from rocade_kernels.aiter.errors import AiterError, LibraryError, LibraryMissingError
from rocade_kernels.aiter.names import VariantKey

DEFECT = "defect"  # code of a reason that lies in a library of this machine
MISSING = "absent"  # code of a reason that an install or a build removes
FAILED = "build"  # code of a reason that lies in a build which failed in this process


@dataclass(slots=True)
class _Known:
    """What this process found out. The lock of a question is held while it is being answered."""

    paths: dict[Wanted, Path] = field(default_factory=dict)
    failures: dict[Wanted, str] = field(default_factory=dict)
    verdicts: dict[Wanted, Verdict] = field(default_factory=dict)
    told: set[Wanted] = field(default_factory=set)
    locks: dict[Wanted, threading.Lock] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def lock(self, wanted: Wanted) -> threading.Lock:
        """The lock of one question."""
        with self.guard:
            return self.locks.setdefault(wanted, threading.Lock())


_known = _Known()


def forget() -> None:
    """Ask the disk again, about everything. Locks are new, too: after a fork no one would free old ones."""
    global _known
    _known = _Known()
    _version.cache_clear()


os.register_at_fork(after_in_child=forget)


def ensure(
    key: VariantKey,
    device: torch.device,
    *,
    head_dim: int,
    page_size: int = 0,
    jobs: int | None = None,
    may_build: bool | None = None,
) -> Path:
    """The library for a variant, which is there, whole and right. Builds and checks it when need be.

    Args:
        key: the variant.
        device: where it will run, and is built for.
        head_dim: of the calls.
        page_size: of the calls, 0 where they are not paged.
        jobs: compilers at once, in a build; None leaves it to AITER.
        may_build: whether a missing library is built; None: as `ROCADE_AITER_BUILD` says.

    Raises:
        BootstrapError: it is missing and could not or must not be built, has no kernel for such calls, or is
            wrong. The same question gets the same answer for the life of the process.
        AiterError: AITER is not installed, of an unknown version, or its library cannot be trusted.
    """
    wanted = _wanted(key, _device.target(device), head_dim, page_size)
    path = _known.paths.get(wanted)
    if path is not None:
        return path
    with _known.lock(wanted):
        if wanted in _known.paths:
            return _known.paths[wanted]
        if wanted in _known.failures:
            raise BootstrapError(_known.failures[wanted])
        path = _existing(wanted)
        if path is None:
            if not (_settings.aiter_build() if may_build is None else may_build):
                raise BootstrapError(
                    f"{_missing(wanted)}\n{_settings.AITER_BUILD.name} is 0, so no plan builds it"
                )
            path = _built(wanted, Means(device, jobs))
        return _checked(wanted, path, device)


def found(key: VariantKey, device: torch.device, *, head_dim: int, page_size: int = 0) -> Path | None:
    """As `ensure` where the library is there and right, else None. It never builds; it may check."""
    wanted = _wanted(key, _device.target(device), head_dim, page_size)
    with _known.lock(wanted):
        if wanted in _known.paths or wanted in _known.failures:
            return _known.paths.get(wanted)
        try:
            path = _existing(wanted)
            return None if path is None else _checked(wanted, path, device)
        except BootstrapError:
            return None


def native_page(key: VariantKey, device: torch.device, *, head_dim: int, page_size: int) -> bool:
    """Whether mha_batch_prefill has a right kernel for a page size; if not, K and V are to be gathered.

    The versions' page sizes in `rocade_kernels.aiter.versions` are only what is expected: builds of the same
    version differ, so the library is asked.

    Raises:
        BootstrapError: `FLASHINFER_AITER_STRICT` is 1, and the answer is no.
        AiterError: as `ensure`.
    """
    wanted = _wanted(key, _device.target(device), head_dim, page_size)
    try:
        ensure(key, device, head_dim=head_dim, page_size=page_size)
    except BootstrapError:
        if _settings.aiter_strict():
            raise
        _tell_once(wanted)
        return False
    return True


def is_there(key: VariantKey, target: str, *, head_dim: int, page_size: int = 0) -> bool:
    """Whether a library is there and whole, and nothing is known against it. It may not have been checked."""
    wanted = _wanted(key, target, head_dim, page_size)
    if wanted in _known.paths or wanted in _known.failures:
        return wanted in _known.paths
    try:
        path = _existing(wanted)
    except (LibraryError, OSError):
        return False
    return path is not None and not any(_recorded(wanted, path))


def refusals(key: VariantKey, target: str, *, head_dim: int, page_size: int = 0) -> tuple[Reason, ...]:
    """Why a library cannot be used on a GPU, as far as is known without building or checking anything.

    Empty where it is there, or can be built, and nothing speaks against it.
    """
    try:
        wanted = _wanted(key, target, head_dim, page_size)
        if wanted in _known.paths:
            return ()
        if wanted in _known.failures:
            verdict = _known.verdicts.get(wanted)
            return (Reason(DEFECT if verdict and verdict.is_defect else FAILED, _known.failures[wanted]),)
        path = _existing(wanted)
        return tuple(_unbuildable(wanted) if path is None else _recorded(wanted, path))
    except (AiterError, OSError) as error:
        return (Reason(FAILED, str(error)),)


def defects() -> tuple[Verdict, ...]:
    """Every library that was found wrong on this machine and is refused, oldest first."""
    try:
        return tuple(v for v in _verdicts.everything(_store.verdict_folder()) if v.is_defect)
    except (BootstrapError, OSError):
        return ()


def verdict(key: VariantKey, device: torch.device, *, head_dim: int, page_size: int = 0) -> Verdict | None:
    """What the check said of a library that was asked for in this process."""
    return _known.verdicts.get(_wanted(key, _device.target(device), head_dim, page_size))


def state(key: VariantKey, target: str, *, head_dim: int, page_size: int = 0) -> str:
    """What is there of a library and known of it, in words. Builds and checks nothing."""
    wanted = _wanted(key, target, head_dim, page_size)
    try:
        path = _existing(wanted)
    except LibraryError as error:
        return str(error)
    if path is None:
        return "not there"
    known = _verdicts.look_up(_store.verdict_folder(), path, target, head_dim, page_size)
    return f"{known.outcome if known else 'not checked'}, {path}"


def _wanted(key: VariantKey, target: str, head_dim: int, page_size: int) -> Wanted:
    version = _version(kernel_settings.AITER_VERSION.read())
    return Wanted(key, version, target, head_dim, page_size)


@functools.lru_cache(maxsize=4)
def _version(override: str) -> str:
    """Looked up once: it takes a search through all that is installed."""
    del override
    return versions.version_in_use()


def _existing(wanted: Wanted) -> Path | None:
    """A library that is there and whole. A damaged one of the store is as if it were not there.

    Raises:
        LibraryError: one that someone else put there is damaged, or could be replaced by others.
    """
    store = _store.library_folder(wanted.target, wanted.version)
    try:
        path = search.find(wanted.key, wanted.version, extra=(store,))
    except LibraryMissingError:
        return None
    reason = _build.damage(path, wanted.symbol)
    if reason and path.parent != store:
        raise LibraryError(reason)
    return None if reason else path


def _recorded(wanted: Wanted, path: Path) -> Iterator[Reason]:
    """Reasons that lie on disk: this very library was found wrong, in this process or another."""
    asked = (path.name, wanted.target, wanted.head_dim, wanted.page_size)
    for verdict in defects():
        about = (verdict.library, verdict.target, verdict.head_dim, verdict.page_size)
        if asked == about and _verdicts.sha256(path) == verdict.sha256:
            yield Reason(DEFECT, _not_used(path, verdict))


def _unbuildable(wanted: Wanted) -> Iterator[Reason]:
    """Why a library that is not there will not be built, either."""
    if not _settings.aiter_build():
        why = f"{_settings.AITER_BUILD.name} is 0, so no plan builds it; `rocade prebuild-aiter` does"
    elif search.package_folder() is None:
        why = "the package aiter, which builds it, is not installed"
    else:
        return
    yield Reason(MISSING, f"{wanted.module}.so is not there, and {why}")


def _not_used(path: Path, verdict: Verdict) -> str:
    return f"{path} is not used: {verdict}"


def _tell_once(wanted: Wanted) -> None:
    """Say why pages are gathered, unless it is merely that there is no kernel for them."""
    verdict = _known.verdicts.get(wanted)
    if wanted in _known.told or (verdict is not None and verdict.outcome is Outcome.NO_KERNEL):
        return
    _known.told.add(wanted)
    _job.say(f"pages of {wanted.page_size} are gathered: {_known.failures.get(wanted, 'no library')}")


def _missing(wanted: Wanted) -> str:
    store = _store.library_folder(wanted.target, wanted.version)
    return recipes.missing(wanted.key, wanted.version, search.folders((store,)))


def _built(wanted: Wanted, means: Means) -> Path:
    try:
        return _build.build(_opened(wanted), wanted, means)
    except (BootstrapError, OSError) as error:
        _known.failures[wanted] = f"{error}\n{_missing(wanted)}"
        raise BootstrapError(_known.failures[wanted]) from error


def _checked(wanted: Wanted, path: Path, device: torch.device) -> Path:
    """The path, once the library is known to be right."""
    try:
        verdict = _check.verdict(_opened(wanted), path, wanted, device)
    except (BootstrapError, OSError) as error:
        _known.failures[wanted] = f"{path} cannot be checked: {error}"
        raise BootstrapError(_known.failures[wanted]) from error
    _known.verdicts[wanted] = verdict
    if verdict.outcome is Outcome.RIGHT:
        _known.paths[wanted] = path
        return path
    _known.failures[wanted] = _not_used(path, verdict)
    raise BootstrapError(_known.failures[wanted])


def _opened(wanted: Wanted) -> Store:
    return _store.opened(wanted.target, wanted.version)

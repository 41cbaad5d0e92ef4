"""Has AITER build a library in a folder of its own, and moves it to where it is looked for when it is whole.

A build that dies leaves a folder that the next one removes. AITER's own lock files lie in it, so a stale one,
for which AITER would wait for ever, is removed as well.
"""

from __future__ import annotations

import functools
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from rocade import _settings
from rocade.backends.aiter.bootstrap import _job, _lock
from rocade.backends.aiter.bootstrap._errors import BootstrapError, ChildError
from rocade.backends.aiter.bootstrap._store import Store
from rocade.backends.aiter.bootstrap._wanted import Means, Wanted
from rocade_kernels.aiter import recipes, search
from rocade_kernels.aiter.elf import check_library
from rocade_kernels.aiter.errors import LibraryError

JOB = "rocade.backends.aiter.bootstrap._build_job"
HELPERS = "module_aiter_*.so"  # what `import aiter` itself needs, small; built once for all libraries


def build(store: Store, wanted: Wanted, means: Means) -> Path:
    """The library in the store, built unless another process has just done so.

    AITER also runs it once, and compiles for the GPU that is wanted unless `GPU_ARCHS` says otherwise.

    Raises:
        BootstrapError: the build failed or took too long, or another process did not finish it in time.
    """
    module = wanted.module
    path = store.libraries / f"{module}.so"
    seconds = _settings.aiter_build_seconds()
    lock = store.named("locks", module, ".lock")
    with _lock.held(lock, f"the build of {module}", seconds, _job.say) as handle:
        if path.is_file():
            if not (reason := damage(path, wanted.symbol)):
                return path
            _job.say(f"built again: {reason}")
        work = store.named("work", module, f"@{socket.gethostname()}")  # see _lock about two hosts
        shutil.rmtree(work, ignore_errors=True)
        try:
            (work / "jit").mkdir(mode=0o700, parents=True)
            (work / "tmp").mkdir(mode=0o700)
            _seed(work / "jit", store)
            job = _described(store, wanted, means, work, seconds)
            _job.say(f"{job.what}, which can take minutes; its output goes to {job.log}")
            _make(job, work / "jit" / path.name, wanted, handle)
            _keep(work / "jit", store, path)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return path


def _described(store: Store, wanted: Wanted, means: Means, work: Path, seconds: float) -> _job.Job:
    pages = wanted.page_size or None
    recipe = recipes.recipe(wanted.key, wanted.version, head_dim=wanted.head_dim, page_size=pages)
    return _job.Job(
        what=f"AITER builds {wanted.module}",
        module=JOB,
        arguments={"recipe": recipe.as_data(), "device": str(means.device)},
        environment=_environment(work, wanted.target, means.jobs),
        seconds=seconds,
        folder=work,
        log=store.named("logs", wanted.module, ".log"),
    )


def damage(path: Path, symbol: str) -> str:
    """Why a library cannot be loaded; empty if it can. Reading a large one takes some milliseconds, once."""
    try:
        status = path.stat()
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return _damage(path, symbol, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _damage(path: Path, symbol: str, *version: int) -> str:
    del version
    try:
        check_library(path, symbol)
    except LibraryError as error:
        return str(error)
    return ""


def _environment(work: Path, target: str, jobs: int | None) -> dict[str, str | None]:
    """AITER builds in the work folder and for this GPU alone, and removes nothing to build it again."""
    changes: dict[str, str | None] = {
        "AITER_JIT_DIR": str(work / "jit"),
        "AITER_REBUILD": None,
        "TMPDIR": str(work / "tmp"),  # AITER keeps locks there, too
    }
    if jobs is not None:
        changes["MAX_JOBS"] = str(jobs)
    if not _settings.has("GPU_ARCHS"):
        changes["GPU_ARCHS"] = target
    return changes


def _seed(jit: Path, store: Store) -> None:
    """Copy what AITER has built before for itself. No links: it writes over a file that it builds again."""
    package = search.package_folder()
    for folder in (*([package / "jit"] if package else []), store.libraries):
        for helper in folder.glob(HELPERS):
            shutil.copy2(helper, jit / helper.name)


def _make(job: _job.Job, built: Path, wanted: Wanted, lock: int) -> None:
    """Run the job. The call that builds a library also runs it; if only that failed, the check tells why."""
    failure: ChildError | None = None
    try:
        _job.run(job, lock=lock, progress=lambda: _objects(built.parent / "build" / built.stem))
    except ChildError as error:
        failure = error
    if not built.is_file():
        if failure is not None:
            raise failure
        others = ", ".join(sorted(path.name for path in built.parent.glob("*.so"))) or "nothing"
        raise BootstrapError(f"{job.what}: it built {others} instead; see {job.log}")
    if reason := damage(built, wanted.symbol):
        raise BootstrapError(f"{job.what}: {reason}") from failure


def _keep(jit: Path, store: Store, path: Path) -> None:
    """Move the library and AITER's helpers into the store, each by rename."""
    for built in (*jit.glob(HELPERS), jit / path.name):
        built.chmod(0o700)
        built.replace(store.libraries / built.name)


def _objects(build: Path) -> str:
    """How far the compilers are, from ninja's list of objects; empty before there is one."""
    total = sum(_planned(build))
    done = sum(1 for _ in build.glob("**/*.o"))
    return f"{done} of {total} objects" if total else ""


def _planned(build: Path) -> Iterator[int]:
    for ninja in build.glob("**/build.ninja"):
        for line in ninja.read_text(errors="replace").splitlines():
            yield line.startswith("build ") and ".o:" in line

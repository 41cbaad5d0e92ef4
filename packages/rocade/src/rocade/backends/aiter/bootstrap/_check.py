"""Has a library checked on tiny problems, in a process that a fault may kill, and keeps the verdict."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

from rocade.backends.aiter.bootstrap import _job, _lock, _verdicts
from rocade.backends.aiter.bootstrap._errors import BootstrapError, CrashError
from rocade.backends.aiter.bootstrap._store import Store
from rocade.backends.aiter.bootstrap._verdicts import Outcome, Verdict
from rocade.backends.aiter.bootstrap._wanted import Wanted
from rocade_kernels import _cache, _native

JOB = "rocade.backends.aiter.bootstrap._check_job"
SECONDS = 300  # for a process that takes 10 s, most of them importing torch


def verdict(store: Store, path: Path, wanted: Wanted, device: torch.device) -> Verdict:
    """What is known of a library's numbers, from a check now if there was none of these bytes.

    Raises:
        BootstrapError: the check itself failed: out of memory, no driver, too slow. Nothing is recorded then.
    """
    digest = _verdicts.sha256(path)
    asked = (store.verdicts, path, wanted.target, wanted.head_dim, wanted.page_size)
    known = _verdicts.look_up(*asked)
    if known is not None:
        return known
    lock = store.locks / f"check-{path.stem}-{digest[:32]}.lock"
    with _lock.held(lock, f"the check of {path.name}", SECONDS, _job.say) as handle:
        known = _verdicts.look_up(*asked)
        if known is not None:
            return known
        outcome, detail = _outcome(store, path, wanted, device, handle)
        if _verdicts.sha256(path) != digest:
            raise BootstrapError(f"{path} changed while it was checked")
        found = Verdict(
            library=path.name,
            sha256=digest,
            target=wanted.target,
            head_dim=wanted.head_dim,
            page_size=wanted.page_size,
            outcome=outcome,
            detail=detail,
            toolchain=store.tag,
            when=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        record = _verdicts.record(store.verdicts, found)
    if found.is_defect:
        _job.say(f"{found}; it is not used. Remove {record} to have it checked again")
    return found


def _outcome(
    store: Store, path: Path, wanted: Wanted, device: torch.device, lock: int
) -> tuple[Outcome, str]:
    """Run the check; a crash is an outcome, too."""
    arguments: dict[str, object] = {
        "library": str(path),
        "key": asdict(wanted.key),
        "version": wanted.version,
        "device": str(device),
        "head_dim": wanted.head_dim,
        "page_size": wanted.page_size,
    }
    try:
        _native.library()  # now, so that building it does not count as the check's time
    except _cache.BuildError as error:
        raise BootstrapError(f"AITER cannot be called: {error}") from error
    _job.say(f"check of {wanted} against fp64")
    with tempfile.TemporaryDirectory(dir=store.work, prefix="check-") as folder:
        job = _job.Job(
            what=f"check of {wanted}",
            module=JOB,
            arguments=arguments,
            environment={},
            seconds=SECONDS,
            folder=Path(folder),
            log=store.named("logs", path.stem, "-check.log"),
        )
        try:
            found = _job.run(job, lock=lock)
        except CrashError as error:
            return Outcome.CRASHED, str(error)
    return Outcome(found["outcome"]), found["detail"]

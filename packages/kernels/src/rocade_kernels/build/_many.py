"""Builds many instances side by side, and writes what a wheel holds: a file for each, and a manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from rocade_kernels._cache import BuildError
from rocade_kernels.build._packed import SUFFIX, Code, pack
from rocade_kernels.build._progress import Progress
from rocade_kernels.build._store import MANIFEST, Store
from rocade_kernels.instances import Instance

SHOWN_FAILURES = 5


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def build_all(store: Store, instances: Sequence[Instance], jobs: int = 0) -> dict[Instance, Code]:
    """The code of every instance, from the cache or built, `jobs` (0: one a core) at a time.

    Every one is tried before a failure is told of.

    Raises:
        BuildError: some could not be built; the text has the first of them.
    """
    made: dict[Instance, Code] = {}
    failures: list[str] = []
    with ThreadPoolExecutor(jobs or cores()) as pool, Progress(len(instances), "GPU kernels") as progress:
        waiting: dict[Future[Code], Instance] = {pool.submit(store.built, item): item for item in instances}
        try:
            for future in as_completed(waiting):
                instance = waiting[future]
                try:
                    made[instance] = future.result()
                except BuildError as error:
                    failures.append(f"{instance.name}: {error}")
                progress.step(instance.name)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if failures:
        shown = "\n\n".join(sorted(failures)[:SHOWN_FAILURES])
        raise BuildError(f"{len(failures)} of {len(instances)} GPU kernels could not be built.\n\n{shown}")
    return {instance: made[instance] for instance in instances}


def write_shipped(store: Store, codes: Iterable[Code], folder: Path) -> Mapping[str, Path]:
    """Write codes and their manifest; returns name in the folder -> path of the file."""
    listed = {}
    written = {}
    for code in codes:
        name = code.instance.name + SUFFIX
        (folder / name).write_bytes(pack(code))
        written[name] = folder / name
        listed[code.instance.name] = {"key": store.key(code.instance), "sha256": code.sha256}
    written[MANIFEST] = folder / MANIFEST
    text = json.dumps({"objects": dict(sorted(listed.items()))}, indent=1)
    written[MANIFEST].write_text(text + "\n", encoding="utf-8")
    return written

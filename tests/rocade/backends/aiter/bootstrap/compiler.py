"""Stands for hipcc in tests: takes its time, or fails, or copies a library. It logs its runs."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

SITE = Path(__file__).parents[2]


def main(name: str, target: Path) -> None:
    """Do as `behaviour.json` says."""
    behaviour = json.loads((SITE / "behaviour.json").read_text())
    with (SITE / "started").open("a") as log:
        log.write(f"{name} {os.getpid()}\n")
    build = target.parent / "build" / name / "build"
    build.mkdir(parents=True)
    (build / "build.ninja").write_text("".join(f"build {n}.cuda.o: cuda_compile {n}.cu\n" for n in range(4)))
    (build / "0.cuda.o").touch()
    time.sleep(behaviour["seconds"])
    if behaviour["exit"]:
        print("attention.cu:7: error: no such instruction")
        sys.exit(behaviour["exit"])
    content = Path(behaviour["library"]).read_bytes()
    size = behaviour["bytes"]
    (target.parent / (behaviour["name"] or target.name)).write_bytes(content[:size] if size else content)
    with (SITE / "finished").open("a") as log:
        settings = {key: os.environ.get(key) for key in ("GPU_ARCHS", "MAX_JOBS", "AITER_REBUILD", "TMPDIR")}
        log.write(json.dumps({"name": name, **settings}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

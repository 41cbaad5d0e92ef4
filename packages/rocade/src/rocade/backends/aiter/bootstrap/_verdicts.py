"""What the numerical check said of a library, kept by its name and bytes, so that each is checked once.

A verdict other than right is a defect of this machine: it is refused from then on, in every process.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from rocade_kernels import _cache
from rocade_kernels._cache import UNFINISHED

CHECK = 2  # number of the cases; a verdict of others is none


class Outcome(StrEnum):
    """How a library did in its check."""

    RIGHT = "right"
    WRONG = "wrong"  # numbers other than the reference's
    CRASHED = "crashed"  # the process that ran it was killed by a signal
    NO_KERNEL = "no kernel"  # it says that it has none for this head size or page size


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found of one library on one GPU, for a head size and page size."""

    library: str  # file name
    sha256: str
    target: str
    head_dim: int
    page_size: int  # 0: not paged
    outcome: Outcome
    detail: str  # errors and limits
    toolchain: str  # as the folder of built libraries says it
    when: str  # ISO 8601, UTC
    check: int = CHECK

    @property
    def is_defect(self) -> bool:
        """Whether the library must not be used."""
        return self.outcome in (Outcome.WRONG, Outcome.CRASHED)

    def __str__(self) -> str:
        pages = f", pages of {self.page_size}" if self.page_size else ""
        where = f"{self.library} on {self.target}, head size {self.head_dim}{pages}"
        return f"{where}: {self.outcome} ({self.detail})"


def _file(folder: Path, library: str, sha256: str, target: str, head_dim: int, page_size: int) -> Path:
    """The name says what a library is tried for, so the same bytes under another name are another case."""
    return folder / f"{Path(library).stem}-{sha256[:32]}-{target}-d{head_dim}-p{page_size}.json"


def record(folder: Path, verdict: Verdict) -> Path:
    """Write a verdict; returns its file."""
    about = (verdict.library, verdict.sha256, verdict.target, verdict.head_dim, verdict.page_size)
    path = _file(folder, *about)
    _cache.write_whole(path, json.dumps(asdict(verdict), indent=1).encode())
    _read.cache_clear()  # the folder's time may not show two changes within a clock tick
    return path


def look_up(folder: Path, path: Path, target: str, head_dim: int, page_size: int) -> Verdict | None:
    """The verdict on a library as it is now, if there is one of the present check."""
    return _parsed(_file(folder, path.name, sha256(path), target, head_dim, page_size))


def everything(folder: Path) -> tuple[Verdict, ...]:
    """All verdicts of the present check, oldest first."""
    try:
        changed = folder.stat().st_mtime_ns
    except FileNotFoundError:
        return ()
    return _read(folder, changed)


@functools.lru_cache(maxsize=4)
def _read(folder: Path, changed: int) -> tuple[Verdict, ...]:
    """Read anew when the folder changed, which it does with each file that appears by rename."""
    del changed
    return tuple(sorted(_verdicts(folder), key=lambda verdict: verdict.when))


def _verdicts(folder: Path) -> Iterator[Verdict]:
    paths = (path for path in folder.glob("*.json") if not path.name.startswith(UNFINISHED))
    return (found for path in paths if (found := _parsed(path)) is not None)


def _parsed(path: Path) -> Verdict | None:
    """None for a file that is not there, damaged, or of another check: the check is then made again."""
    try:
        fields = json.loads(path.read_bytes())
        found = Verdict(**{**fields, "outcome": Outcome(fields["outcome"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if found.check == CHECK else None


def sha256(path: Path) -> str:
    """Hash of a library's bytes."""
    status = path.stat()
    return _sha256(path, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, *version: int) -> str:
    """Hashed again when the file is another or changed; 300 MB/s to 2 GB/s."""
    del version
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

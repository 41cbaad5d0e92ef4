"""Evidence: what was really run to back a row; `evidence/*.json`, written only by `rocade verify --record`.

One file holds one backend on one target: `{target}.{backend}.{kind}.json`. A record is fresh as long as the
sources that produced it hash to the same value.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arch_caps._sources import Sources, source_hash
from arch_caps._table import ROWS, TARGETS
from arch_caps._types import EvidenceKind, Op

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRecord:
    """Conformance cases that one operation passed, and the hash of the sources that passed them."""

    op: Op
    cases: int
    source_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One recorded run of one backend on one target."""

    kind: EvidenceKind
    target: str
    backend: str
    on: str  # the machine, in words
    date: str  # ISO 8601 day
    toolchain: Mapping[str, str]  # name -> version of what the result depends on
    ops: tuple[OpRecord, ...]

    def __post_init__(self) -> None:
        problems = [*_field_problems(self), *_op_problems(self)]
        if problems:
            raise ValueError(f"evidence for {self.backend} on {self.target}: " + "; ".join(problems))

    @property
    def file_name(self) -> str:
        """Name of the file that holds this record."""
        return f"{self.target}.{self.backend}.{self.kind}.json"


def evidence_dir() -> Path:
    """Where the evidence lies: beside the modules in a wheel, beside `src` in a checkout."""
    here = Path(__file__).resolve().parent
    inside = here / "evidence"
    return inside if inside.is_dir() else here.parents[1] / "evidence"


def read_evidence(directory: Path | None = None) -> tuple[Evidence, ...]:
    """Every record in `directory`, in order of file name.

    Raises ValueError that names the file when one is malformed.
    """
    place = evidence_dir() if directory is None else directory
    return tuple(_read(path) for path in sorted(place.glob("*.json")))


def source_hashes(runs: Iterable[tuple[Op, str]], root: Path | None) -> dict[tuple[Op, str], str]:
    """The hash that evidence of each (op, backend) would be bound to if it were gathered now.

    Who records evidence takes them before the run and compares: an edit made meanwhile did not run.
    `root` is that of `gather_evidence`.
    """
    sources = _sources_at(root)
    return {(op, backend): source_hash(op, backend, sources) for op, backend in runs}


def gather_evidence(
    *,
    kind: EvidenceKind,
    target: str,
    on: str,
    toolchain: Mapping[str, str],
    cases: Mapping[tuple[Op, str], int],
    root: Path | None,
    date: str | None = None,
) -> list[Evidence]:
    """Records of a run in which every case passed, one for each backend.

    Args:
        kind: what was really done.
        target: a name in `TARGETS`.
        on: the machine, in words; no host name.
        toolchain: name -> version of what the result depends on (torch, compiler, driver).
        cases: (op, backend) -> number of cases that ran and passed, all of them above 0.
        root: the checkout whose sources ran; None for the packages that are installed.
        date: ISO 8601 day; today when None.
    """
    day = datetime.date.today().isoformat() if date is None else date
    sources = _sources_at(root)
    return [
        Evidence(
            kind=kind,
            target=target,
            backend=backend,
            on=on,
            date=day,
            toolchain=dict(sorted(toolchain.items())),
            ops=tuple(
                OpRecord(op=op, cases=count, source_hash=source_hash(op, name, sources))
                for (op, name), count in sorted(cases.items())
                if name == backend
            ),
        )
        for backend in sorted({name for _, name in cases})
    ]


def _sources_at(root: Path | None) -> Sources:
    return Sources.installed() if root is None else Sources.checkout(root)


def write_evidence(records: Iterable[Evidence], root: Path) -> list[Path]:
    """Put records into the checkout `root`, in place of those of the same kind, target and backend.

    Returns:
        The files written, one per record.
    """
    return [_write(record, root / "arch_caps" / "evidence") for record in records]


def pack_evidence(records: Iterable[Evidence]) -> str:
    """Records as the text of one file, to be sent to who keeps the checkout."""
    return json.dumps({"schema": SCHEMA, "records": [_data(record) for record in records]}, indent=2) + "\n"


def unpack_evidence(text: str) -> list[Evidence]:
    """The records of a file that `pack_evidence` made; ValueError when it is malformed."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}; this version reads {SCHEMA}")
        records = [_parse(record) for record in data["records"]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"no file of evidence: {error!r}") from error
    if not records:
        raise ValueError("no file of evidence: it holds no record")
    return records


def is_fresh(record: OpRecord, backend: str, root: Path) -> bool:
    """Whether the sources in the checkout `root` are those that produced the record."""
    return source_hash(record.op, backend, root) == record.source_hash


def _write(record: Evidence, directory: Path) -> Path:
    path = directory / record.file_name
    path.write_text(json.dumps(_data(record), indent=2) + "\n", encoding="utf-8")
    return path


def _data(record: Evidence) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": record.kind,
        "target": record.target,
        "backend": record.backend,
        "on": record.on,
        "date": record.date,
        "toolchain": dict(record.toolchain),
        "ops": {r.op: {"cases": r.cases, "source_hash": r.source_hash} for r in record.ops},
    }


def _read(path: Path) -> Evidence:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        record = _parse(data)
        if record.file_name != path.name:
            raise ValueError(f"holds what belongs into {record.file_name}")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: not an evidence file: {error!r}") from error
    return record


def _parse(data: Mapping[str, Any]) -> Evidence:
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']!r}; this version reads {SCHEMA}")
    return Evidence(
        kind=EvidenceKind(data["kind"]),
        target=data["target"],
        backend=data["backend"],
        on=data["on"],
        date=data["date"],
        toolchain=dict(data["toolchain"]),
        ops=tuple(OpRecord(op=Op(op), **facts) for op, facts in data["ops"].items()),
    )


def _field_problems(record: Evidence) -> list[str]:
    problems = []
    if record.target not in TARGETS:
        problems.append(f"unknown target {record.target!r}")
    if not record.on.strip():
        problems.append("on is empty")
    if not _is_day(record.date):
        problems.append(f"date {record.date!r} is no ISO 8601 day")
    if not record.toolchain:
        problems.append("no toolchain version")
    return problems


def _op_problems(record: Evidence) -> list[str]:
    problems = [] if record.ops else ["no operation"]
    for entry in record.ops:
        if (entry.op, record.backend) not in ROWS:
            problems.append(f"no row for ({entry.op}, {record.backend})")
        if type(entry.cases) is not int or entry.cases < 1:
            problems.append(f"{entry.op}: {entry.cases} cases prove nothing")
        if len(entry.source_hash) != 64:
            problems.append(f"{entry.op}: source_hash is not a SHA-256")
    return problems


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2026-01-31")

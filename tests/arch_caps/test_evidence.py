"""Evidence survives a round trip, refuses what proves nothing, and goes stale with its sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.arch_caps.helpers import ROOT

from arch_caps import (
    Evidence,
    EvidenceKind,
    Op,
    gather_evidence,
    is_fresh,
    pack_evidence,
    read_evidence,
    source_hashes,
    unpack_evidence,
    write_evidence,
)
from arch_caps._evidence import OpRecord, evidence_dir

MODULE = "packages/rocade/src/rocade/backends/{}/__init__.py"
CPU_SOURCE = "packages/kernels/src/rocade_kernels/cpu/a.cpp"
CASES = {(Op.CASCADE, "torch"): 7, (Op.MERGE_STATE, "torch"): 5, (Op.CASCADE, "cpu"): 3}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with two backends and a place for evidence."""
    for name in (MODULE.format("torch"), MODULE.format("cpu"), CPU_SOURCE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "arch_caps" / "evidence").mkdir(parents=True)
    return tmp_path


def gather(root: Path, **changes: object) -> list[Evidence]:
    facts: dict[str, object] = {
        "kind": EvidenceKind.HARDWARE,
        "target": "cpu-x86_64",
        "on": "some CPU, 2 threads",
        "toolchain": {"torch": "2.13.0"},
        "cases": CASES,
        "root": root,
        "date": "2026-11-30",
    }
    return gather_evidence(**{**facts, **changes})  # type: ignore[arg-type]


def record(root: Path, **changes: object) -> list[Path]:
    return write_evidence(gather(root, **changes), root)


def test_one_file_a_backend(root: Path) -> None:
    paths = record(root)
    assert [path.name for path in paths] == ["cpu-x86_64.cpu.hardware.json", "cpu-x86_64.torch.hardware.json"]
    cpu, torch = read_evidence(root / "arch_caps" / "evidence")
    assert {entry.op: entry.cases for entry in torch.ops} == {Op.CASCADE: 7, Op.MERGE_STATE: 5}
    assert {entry.op: entry.cases for entry in cpu.ops} == {Op.CASCADE: 3}
    assert (torch.kind, torch.target, torch.on) == (
        EvidenceKind.HARDWARE,
        "cpu-x86_64",
        "some CPU, 2 threads",
    )
    assert (torch.date, torch.toolchain) == ("2026-11-30", {"torch": "2.13.0"})


def test_a_new_run_replaces_the_old_one_of_that_backend(root: Path) -> None:
    record(root)
    record(root, cases={(Op.MERGE_STATE, "torch"): 9})
    cpu, torch = read_evidence(root / "arch_caps" / "evidence")
    assert [(entry.op, entry.cases) for entry in torch.ops] == [(Op.MERGE_STATE, 9)]
    assert cpu.ops[0].cases == 3


def test_the_date_is_today_unless_given(root: Path) -> None:
    (path,) = record(root, date=None, cases={(Op.CASCADE, "torch"): 1})
    assert len(json.loads(path.read_text())["date"]) == 10


def test_a_changed_source_makes_it_stale(root: Path) -> None:
    record(root)
    cpu, torch = read_evidence(root / "arch_caps" / "evidence")
    assert is_fresh(cpu.ops[0], "cpu", root)
    (root / CPU_SOURCE).write_text("int a;\n")
    assert not is_fresh(cpu.ops[0], "cpu", root)
    assert is_fresh(torch.ops[0], "torch", root)


def test_hashes_before_a_run_differ_from_those_after_an_edit(root: Path) -> None:
    before = source_hashes(CASES, root)
    cpu, _ = gather(root)
    assert {(entry.op, "cpu"): entry.source_hash for entry in cpu.ops}.items() <= before.items()
    (root / CPU_SOURCE).write_text("int a;\n")
    cpu, torch = gather(root)
    assert all(entry.source_hash != before[entry.op, "cpu"] for entry in cpu.ops)
    assert all(entry.source_hash == before[entry.op, "torch"] for entry in torch.ops)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "gfx90a"}, "unknown target 'gfx90a'"),
        ({"on": " "}, "on is empty"),
        ({"date": "yesterday"}, "no ISO 8601 day"),
        ({"date": "20261130"}, "no ISO 8601 day"),
        ({"toolchain": {}}, "no toolchain version"),
        ({"cases": {(Op.CASCADE, "torch"): 0}}, "0 cases prove nothing"),
    ],
)
def test_what_proves_nothing_is_refused(root: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record(root, **changes)
    assert read_evidence(root / "arch_caps" / "evidence") == ()


def test_all_problems_at_once() -> None:
    with pytest.raises(
        ValueError, match=r"unknown target.*on is empty.*no row for.*True cases.*no.* SHA-256"
    ):
        Evidence(
            kind=EvidenceKind.HARDWARE,
            target="x",
            backend="y",
            on="",
            date="2026-01-01",
            toolchain={"a": "1"},
            ops=(OpRecord(op=Op.CASCADE, cases=True, source_hash="short"),),
        )


@pytest.mark.parametrize(
    "edit",
    [
        {"schema": 2},
        {"kind": "believed"},
        {"target": "gfx942"},
        {"ops": {}},
        {"ops": {"no_such_op": {"cases": 1, "source_hash": "0" * 64}}},
        {"ops": {"cascade": {"cases": 1}}},
        {"ops": {"cascade": {"cases": "1", "source_hash": "0" * 64}}},
        {"ops": {"cascade": {"cases": 1, "source_hash": "0" * 64, "more": 1}}},
        {"ops": []},
        {"on": None},
        {"date": None},
        {"toolchain": None},
    ],
    ids=str,
)
def test_a_malformed_file_is_named(root: Path, edit: dict[str, object]) -> None:
    (path,) = record(root, cases={(Op.CASCADE, "torch"): 1})
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    with pytest.raises(ValueError, match=path.name):
        read_evidence(path.parent)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "null"])
def test_a_file_that_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json"):
        read_evidence(tmp_path)


def test_recorded_evidence_is_readable() -> None:
    assert evidence_dir() == ROOT / "arch_caps" / "evidence"
    for found in read_evidence():
        assert found.ops


def test_a_received_file_becomes_the_same_records(root: Path, tmp_path: Path) -> None:
    record(root)
    sent = read_evidence(root / "arch_caps" / "evidence")
    assert tuple(unpack_evidence(pack_evidence(sent))) == sent


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"schema": 1, "records": []}', '{"schema": 2, "records": []}']
)
def test_a_received_file_that_holds_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no file of evidence"):
        unpack_evidence(text)

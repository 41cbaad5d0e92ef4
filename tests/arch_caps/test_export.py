"""Renderings claim no more than the evidence, and are the same every time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arch_caps import DEFECTS, ROWS, TARGETS, DType, Evidence, EvidenceKind, Kernel, Op, Status, export
from arch_caps._evidence import OpRecord
from arch_caps._predicate import OneOf
from arch_caps._row import Row
from arch_caps._settings import SETTINGS
from arch_caps.export import Claim, Claims, _claims
from arch_caps.export._claims import best_claims, state, weakest
from rocade_kernels._instances import INSTANCES
from rocade_kernels.instances import Instance

CPU = "cpu-x86_64"
KEY = (Op.CASCADE, "cpu", CPU)
DECODES = {(op, "cpu", CPU): None for op in (Op.SINGLE_DECODE, Op.BATCH_DECODE)}


def claim(kind: EvidenceKind = EvidenceKind.HARDWARE, *, fresh: bool = True) -> Claim:
    return Claim(kind=kind, cases=9, fresh=fresh, on="a CPU", date="2026-11-30", toolchain={"torch": "2.13"})


@pytest.mark.parametrize(
    ("key", "claims", "words"),
    [
        (KEY, {}, "built, no recorded run"),
        (KEY, {KEY: claim()}, "hardware"),
        (KEY, {KEY: claim(EvidenceKind.EMULATED)}, "emulated"),
        (KEY, {KEY: claim(EvidenceKind.COMPILED)}, "compiled"),
        (KEY, {KEY: claim(fresh=False)}, "hardware, stale"),
        ((Op.CASCADE, "cpu", "gfx942"), {(Op.CASCADE, "cpu", "gfx942"): claim()}, "no"),
        ((Op.CASCADE, "aiter_ck", "gfx942"), {}, "no"),
        ((Op.CASCADE, "torch", "gfx942"), {KEY: claim()}, "built, no recorded run"),
    ],
)
def test_a_cell_claims_what_is_recorded(key: tuple[Op, str, str], claims: Claims, words: str) -> None:
    assert state(*key, claims) == words


def test_the_cell_of_a_planned_row(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = replace(ROWS[Op.CASCADE, "hip"], status=Status.PLANNED)
    monkeypatch.setattr(_claims, "ROWS", {(Op.CASCADE, "hip"): planned})
    assert state(Op.CASCADE, "hip", "gfx942", {}) == "planned"


@pytest.mark.parametrize(
    ("states", "word"),
    [
        (["hardware", "hardware"], "hardware"),
        (["hardware", "emulated"], "emulated"),
        (["hardware", "compiled", "emulated"], "compiled"),
        (["hardware", "hardware, stale"], "hardware, stale"),
        (["hardware, stale", "emulated"], "emulated, stale"),
        (["hardware, stale", "built, no recorded run"], "built, no recorded run"),
        (["planned", "hardware"], "planned"),
        (["no", "hardware"], "no"),
    ],
)
def test_a_group_claims_what_its_weakest_member_does(states: list[str], word: str) -> None:
    assert weakest(states) == word
    assert weakest(reversed(states)) == word


def evidence(kind: EvidenceKind) -> Evidence:
    record = OpRecord(op=Op.CASCADE, cases=3, source_hash="0" * 64)
    return Evidence(
        kind=kind,
        target=CPU,
        backend="cpu",
        on="x",
        date="2026-01-01",
        toolchain={"a": "1"},
        ops=(record,),
    )


def test_fresh_evidence_comes_before_strong_evidence() -> None:
    found = [
        (evidence(EvidenceKind.HARDWARE), Op.CASCADE, 3, False),
        (evidence(EvidenceKind.EMULATED), Op.CASCADE, 4, True),
        (evidence(EvidenceKind.COMPILED), Op.CASCADE, 5, True),
    ]
    for order in (found, found[::-1]):
        best = best_claims(order)[KEY]
        assert (best.kind, best.fresh, best.cases) == (EvidenceKind.EMULATED, True, 4)
    assert best_claims(found[:1])[KEY].kind is EvidenceKind.HARDWARE


def cells(block: str, first: str, backend: str) -> list[str]:
    (line,) = [x for x in block.splitlines() if x.startswith(f"| {first}") and f"`{backend}`" in x]
    return [cell.strip() for cell in line.strip("|").split("|")][2:]


def test_the_readme_shows_the_weakest_of_a_family() -> None:
    some: Claims = {(Op.SINGLE_DECODE, "cpu", CPU): claim()}
    every: Claims = dict.fromkeys(DECODES, claim())
    assert cells(export.readme_block(some), "decode", "cpu")[-1] == "built, no recorded run"
    assert cells(export.readme_block(every), "decode", "cpu") == ["no", "no", "no", "no", "hardware"]


def test_the_readme_covers_every_operation() -> None:
    from arch_caps.export._matrix import FAMILIES

    assert sorted(op for _, ops in FAMILIES for op in ops) == sorted(Op)


def test_the_page_has_every_row_defect_target_and_claim() -> None:
    page = export.support_page({KEY: claim()})
    for op, backend in ROWS:
        assert f"| {op} | `{backend}` |" in page
    for found in DEFECTS.values():
        for defect in found:
            assert f"\n### {defect.id}\n" in page
            assert f"(#{defect.id})" in page
    for target in TARGETS.values():
        assert f"\n### {target.title}\n" in page
    assert f"| cascade | `cpu` | {CPU} | hardware | 9 | a CPU | 2026-11-30 | torch 2.13 |" in page
    assert "No run is recorded." in export.support_page({})


def test_tables_are_rectangular() -> None:
    """A cell with a bar in it would shift every cell after it."""
    for text in (export.support_page({KEY: claim()}), export.readme_block({})):
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_staleness_alone_is_no_difference() -> None:
    fresh, stale = {KEY: claim()}, {KEY: claim(fresh=False)}
    for render in (export.support_page, export.readme_block, lambda c: export.table_json(c, "x")):
        assert render(fresh) != render(stale)
        assert export.without_staleness(render(fresh)) == export.without_staleness(render(stale))
        assert export.without_staleness(render({})) != export.without_staleness(render(stale))


def test_json_is_complete_and_starts_with_its_notice() -> None:
    text = export.table_json({KEY: claim()}, "a notice")
    assert text.splitlines()[0] == '{ "generated": "a notice",'
    data = json.loads(text)
    assert [target["name"] for target in data["targets"]] == list(TARGETS)
    assert [(row["op"], row["backend"]) for row in data["rows"]] == list(ROWS)
    assert all(row["states"].keys() == TARGETS.keys() for row in data["rows"])
    assert {defect["id"] for defect in data["defects"]} == {d.id for f in DEFECTS.values() for d in f}
    (row,) = [row for row in data["rows"] if (row["op"], row["backend"]) == KEY[:2]]
    assert row["states"][CPU] == "hardware"
    assert data["targets"][0]["facts"]["wave_size"]["value"] == 64


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
def test_the_header_compiles_and_holds_the_facts(tmp_path: Path) -> None:
    (tmp_path / "arch_caps.hpp").write_text(export.cpp_header(TARGETS))
    checks = "".join(
        f"static_assert(rocade::arch_caps::{name.replace('-', '_')}.{field} == {value});\n"
        for name, target in TARGETS.items()
        for field, value in (
            ("wave_size", target.wave_size.value),
            ("lds_bytes", target.lds_bytes.value),
            ("max_direct_to_lds_bits", max(target.direct_to_lds_bits.value or (0,))),
        )
    )
    (tmp_path / "a.cpp").write_text('#include "arch_caps.hpp"\n' + checks)
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "a.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def instances(rows: list[Row]) -> list[Instance]:
    scope: dict[str, list[Instance]] = {}
    exec(export.instance_list(rows), scope)
    return list(scope["INSTANCES"])


def with_kernels(op: Op, status: Status, *kernels: Kernel) -> Row:
    return replace(ROWS[op, "hip"], status=status, kernels=kernels)


def test_planned_rows_build_nothing() -> None:
    assert instances([with_kernels(Op.MERGE_STATE, Status.PLANNED, Kernel(name="merge"))]) == []


def test_a_built_row_lists_each_choice_of_its_kernels_for_its_targets() -> None:
    kernel = Kernel(
        name="merge", dtypes=(DType.FP16, DType.BF16), head_dims=(64, 128), variants=("", "general")
    )
    found = instances([with_kernels(Op.MERGE_STATE, Status.BUILT, kernel)])
    assert Instance("merge", "gfx942", "bf16", 128, "general") in found
    assert len(found) == len(set(found)) == 4 * 2 * 2 * 2
    one = replace(with_kernels(Op.MERGE_STATE, Status.BUILT, kernel), targets=OneOf("gfx950"))
    assert {instance.target for instance in instances([one])} == {"gfx950"}


def test_a_kernel_that_two_rows_need_is_built_once() -> None:
    kernel = Kernel(name="merge")
    rows = [with_kernels(op, Status.BUILT, kernel) for op in (Op.MERGE_STATE, Op.MERGE_STATE_IN_PLACE)]
    assert instances(rows) == instances(rows[:1])
    assert instances(rows)[0].name == "merge-d0-gfx942"


def test_the_committed_list_equals_the_rows() -> None:
    assert list(INSTANCES) == instances([row for row in ROWS.values() if row.backend == "hip"])


@pytest.mark.parametrize(
    "wrong", [{"name": "Merge States"}, {"variants": ()}, {"head_dims": (-8,)}, {"variants": ("a-b",)}]
)
def test_a_kernel_that_cannot_be_built_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="kernel"):
        Kernel(**{"name": "merge", **wrong})


def test_settings_page() -> None:
    page = export.settings_page({"rocade-arch-caps": SETTINGS, "rocade-emulator": ()})
    assert "## rocade-arch-caps" in page
    assert "| `ROCADE_ALLOW_KNOWN_BAD` | str | not set | " in page
    assert "rocade-emulator" not in page


def test_renderings_are_stable() -> None:
    claims = {KEY: claim()}
    assert export.support_page(claims) == export.support_page(dict(reversed(claims.items())))
    assert export.readme_block(claims) == export.readme_block(claims)
    assert export.cpp_header(TARGETS) == export.cpp_header(TARGETS)

"""Recorded defects refuse what they spoil, refuse when in doubt, and can be overridden out loud."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
from tests.arch_caps.helpers import request

from arch_caps import (
    DEFECTS,
    ROWS,
    TARGETS,
    Defect,
    DType,
    KnownBadWarning,
    Layout,
    MaskKind,
    Op,
    Request,
    Toolchain,
    _reasons,
    reasons,
)
from arch_caps._predicate import OneOf, Range
from arch_caps._versions import Window

ALL = list({defect.id: defect for found in DEFECTS.values() for defect in found}.values())
RECENT = Toolchain(rocm="7.1", aiter="0.1.22", compiler="20")


def defect_ids(asked: Request, target: str, toolchain: Toolchain | None) -> set[str]:
    """Ids of the defects that refuse `asked` on AITER."""
    found = reasons(asked, backend="aiter_ck", target=target, toolchain=toolchain)
    return {reason.text.split(":")[0].split()[-1] for reason in found if reason.code == "defect"}


def defect(**changes: object) -> Defect:
    facts: dict[str, object] = {
        "id": "synthetic",
        "backend": "aiter_ck",
        "ops": (Op.BATCH_DECODE,),
        "targets": ("gfx942",),
        "when": (("page_size", OneOf(16)),),
        "detail": "it is wrong",
        "source": "nowhere",
    }
    return Defect(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("item", ALL, ids=lambda d: d.id)
def test_a_record_points_at_rows_and_targets(item: Defect) -> None:
    assert set(item.targets) <= set(TARGETS)
    for op in item.ops:
        row = ROWS[op, item.backend]
        assert all(row.targets.holds(target, None) for target in item.targets)


@pytest.mark.parametrize("item", ALL, ids=lambda d: d.id)
def test_a_record_prints_versions_and_requests(item: Defect) -> None:
    text = item.scope()
    assert all(f"{axis} {window}" in text for axis, window in item.windows())
    assert all(f"{field}: {predicate}" in text for field, predicate in item.when)


GFX950 = {"aiter-softcap-causal-hd128-gfx950"}
GFX942 = {"aiter-softcap-causal-hd128-gfx942"}
OLD = Toolchain(aiter="0.1.16.post3")
SOFTCAP = {
    "op": Op.SINGLE_PREFILL,
    "page_size": 0,
    "mask": MaskKind.CAUSAL,
    "logits_soft_cap": 30.0,
    "max_kv_len": 600,
}


@pytest.mark.parametrize(
    ("target", "changes", "toolchain", "hit"),
    [
        ("gfx950", {}, RECENT, GFX950),
        ("gfx950", {"max_kv_len": 37}, RECENT, GFX950),
        ("gfx950", {"logits_soft_cap": 0.0}, RECENT, set()),
        ("gfx950", {"mask": MaskKind.NONE}, RECENT, set()),
        ("gfx950", {"head_dim_qk": 64, "head_dim_vo": 64}, RECENT, set()),
        ("gfx942", {}, RECENT, set()),
        ("gfx942", {}, OLD, GFX942),
        ("gfx942", {"max_kv_len": 511}, OLD, set()),
        (
            "gfx942",
            {"max_kv_len": None},
            OLD,
            GFX942,
        ),
        ("gfx942", {}, Toolchain(), GFX942),
        ("gfx942", {}, None, GFX942),
        ("gfx942", {}, Toolchain(aiter="0.1.20"), set()),
    ],
    ids=str,
)
def test_soft_cap(
    target: str, changes: dict[str, object], toolchain: Toolchain | None, hit: set[str]
) -> None:
    assert defect_ids(request(**{**SOFTCAP, **changes}), target, toolchain) == hit


@pytest.mark.parametrize(
    ("rocm", "hit"), [("7.2", True), ("7.2.4", True), ("7.1.1", False), ("7.3", False), (None, True)]
)
def test_miscompiled_causal_prefill(rocm: str | None, hit: bool) -> None:
    asked = request(op=Op.BATCH_PREFILL_PAGED, mask=MaskKind.CAUSAL)
    found = defect_ids(asked, "gfx950:sramecc+", Toolchain(rocm=rocm, aiter="0.1.22"))
    assert ("aiter-causal-prefill-rocm72-gfx950" in found) is hit


def test_page_fault_needs_more_than_one_page() -> None:
    name = "aiter-page1024-fault-gfx950"
    assert name in defect_ids(request(page_size=1024, max_kv_len=1025), "gfx950", RECENT)
    assert name in defect_ids(request(page_size=1024), "gfx950", RECENT)
    assert name not in defect_ids(request(page_size=1024, max_kv_len=1024), "gfx950", RECENT)
    assert name not in defect_ids(request(page_size=16, max_kv_len=1025), "gfx950", RECENT)


def test_gathered_keys_share_the_defects_of_the_varlen_function_and_none_of_the_paged_one() -> None:
    capped = {"mask": MaskKind.CAUSAL, "logits_soft_cap": 30.0, "op": Op.BATCH_PREFILL_PAGED}
    for page_size, hit in ((1, True), (16, True), (1023, True), (1024, False), (1025, True), (2048, True)):
        found = defect_ids(request(**capped, page_size=page_size, max_kv_len=600), "gfx950", RECENT)
        assert ("aiter-softcap-causal-hd128-gfx950" in found) is hit
        assert found == (GFX950 if hit else set())
    old = Toolchain(rocm="7.1", aiter="0.1.13")
    for page_size, hit in ((16, False), (1024, True)):
        found = defect_ids(request(page_size=page_size, max_qo_len=4), "gfx942", old)
        assert ({"aiter-page-table-overread", "aiter-descriptor-carry"} == found) is hit


FP16 = dict.fromkeys(("q_dtype", "kv_dtype", "o_dtype"), DType.FP16)


@pytest.mark.parametrize(
    ("facts", "hit"),
    [
        ({"op": Op.BATCH_PREFILL_RAGGED, "page_size": 0, "max_qo_len": 1, **FP16}, True),
        ({"op": Op.BATCH_PREFILL_RAGGED, "page_size": 0, "max_qo_len": 2, **FP16}, False),
        ({"op": Op.BATCH_PREFILL_RAGGED, "page_size": 0, "max_qo_len": 1}, False),
        ({"op": Op.BATCH_DECODE, "page_size": 16, "max_qo_len": 1, **FP16}, True),
        ({"op": Op.BATCH_DECODE, "page_size": 1024, "max_qo_len": 1, "max_kv_len": 9, **FP16}, False),
        ({"op": Op.BATCH_DECODE, "max_qo_len": 1, "head_dim_qk": 64, "head_dim_vo": 64}, True),
        ({"op": Op.SINGLE_DECODE, "page_size": 0, "max_qo_len": 1, **FP16}, False),
        ({"op": Op.SINGLE_DECODE, "page_size": 0, "max_qo_len": 1, "logits_soft_cap": 30.0, **FP16}, True),
        ({"op": Op.SINGLE_PREFILL, "page_size": 0, "max_qo_len": 2, "logits_soft_cap": 30.0, **FP16}, False),
    ],
    ids=str,
)
def test_one_query_a_request(facts: dict[str, object], hit: bool) -> None:
    found = defect_ids(request(**facts), "gfx942", RECENT)
    assert any("one-query" in name for name in found) is hit
    assert not any("one-query" in name for name in defect_ids(request(**facts), "gfx950", RECENT))


def test_an_unset_field_that_is_no_length_is_not_unknown() -> None:
    item = defect(when=(("fixed_split_size", Range(min=1)),))
    assert not item.hits(request())
    assert item.hits(request(fixed_split_size=64))


def test_every_given_window_must_match() -> None:
    item = defect(rocm=Window(start="7.2", end="7.3"), aiter=Window(end="0.1.12"))
    assert item.in_window(Toolchain(rocm="7.2", aiter="0.1.11"))
    assert item.in_window(Toolchain(rocm="7.2"))
    assert not item.in_window(Toolchain(rocm="7.3"))
    assert not item.in_window(Toolchain(rocm="7.2", aiter="0.1.12"))
    assert defect().in_window(Toolchain())


def test_the_reason_says_what_and_where() -> None:
    asked = request(page_size=1024)
    found = reasons(
        asked, backend="aiter_ck", target="gfx950", toolchain=Toolchain(rocm="7.1", aiter="0.1.20")
    )
    (text,) = [r.text for r in found if "page1024" in r.text]
    assert "memory fault" in text
    assert "aiter [0.1.20, +inf)" in text
    assert "page_size: 1024" in text
    assert "here: rocm 7.1, aiter 0.1.20" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "Not an id"}, "id is not"),
        ({"detail": ""}, "detail is empty"),
        ({"source": ""}, "source is empty"),
        ({"ops": ()}, "ops is empty"),
        ({"when": (("no_field", OneOf(1)),)}, "no field of a request"),
        ({"when": (("page_size", 16),)}, "is no predicate"),
    ],
)
def test_a_malformed_record_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        defect(**changes)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """No defect has been warned of yet."""
    monkeypatch.setattr(_reasons, "_warned", set())


BAD = request(page_size=1024, q_dtype=DType.FP16, kv_dtype=DType.FP16, o_dtype=DType.FP16)


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("value", ["aiter-page1024-fault-gfx950", "all", " x , aiter-page1024-fault-gfx950 "])
def test_the_override_warns_once(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    assert defect_ids(BAD, "gfx950", RECENT) == {"aiter-page1024-fault-gfx950"}
    monkeypatch.setenv("ROCADE_ALLOW_KNOWN_BAD", value)
    with pytest.warns(KnownBadWarning, match="aiter-page1024-fault-gfx950: .*memory fault"):
        assert defect_ids(BAD, "gfx950", RECENT) == set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert defect_ids(BAD, "gfx950", RECENT) == set()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("value", ["", " ", "0", "yes", "aiter", "aiter-page1024"])
def test_other_values_do_not_override(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ROCADE_ALLOW_KNOWN_BAD", value)
    assert defect_ids(BAD, "gfx950", RECENT) == {"aiter-page1024-fault-gfx950"}


@pytest.mark.usefixtures("forgetful")
def test_the_override_lifts_no_other_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCADE_ALLOW_KNOWN_BAD", "all")
    asked = replace(BAD, kv_layout=Layout.HND)
    with pytest.warns(KnownBadWarning):
        found = reasons(asked, backend="aiter_ck", target="gfx950", toolchain=RECENT)
    assert [reason.code for reason in found] == ["kv_layout"]

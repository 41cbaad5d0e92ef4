"""Backend `aiter_ck` over the conformance grid, with a model of AITER behind the calls.

Addresses, strides, page tables, masks, the LSE's conversion, rows without keys, partial states.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.rocade.backends.aiter.model import Aiter, stand_in

from arch_caps import DType, Layout, Op, PosEncoding
from rocade.conformance import grid, runner
from rocade.conformance.cases import AttentionCase, Case, DTypes
from rocade.conformance.runner import Outcome
from rocade_kernels.aiter.names import Family

DENSE = (Op.SINGLE_PREFILL, Op.SINGLE_DECODE, Op.BATCH_PREFILL_RAGGED)
PAGED = (Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE)
HALVES = (DType.FP16, DType.BF16)


def accepted(case: Case) -> AttentionCase:
    """The case with what the table refuses replaced by something near that it accepts."""
    assert isinstance(case, AttentionCase)
    dtype = case.dtypes.q if case.dtypes.q in HALVES else HALVES[case.index % 2]
    dim = max(8, min(case.head_dims[0] // 8 * 8, 256))
    return replace(
        case,
        dtypes=DTypes(dtype, dtype, dtype),
        head_dims=(dim, dim),
        layout=Layout.NHD if case.op in PAGED else case.layout,
        mask="causal" if case.mask in ("custom", "packed") else case.mask,
        pos_encoding=PosEncoding.NONE,
        split="auto" if case.split == "fixed" else case.split,
        entry="plain" if case.entry == "graph" else case.entry,
        partial=False,
    )


def run_all(cases: list[AttentionCase], model: Aiter) -> Counter[Family]:
    """Every case must pass; the families that were called."""
    for case in cases:
        report = runner.run(case, "aiter_ck", "gfx942")
        assert report.outcome is Outcome.PASSED, f"{case}: {report.detail}"
    return Counter(library.key.family for library, _, _ in model.calls)


@pytest.fixture
def known_bad_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """What AITER got wrong on some GPU is no matter of the model."""
    monkeypatch.setenv("ROCADE_ALLOW_KNOWN_BAD", "all")


@pytest.mark.filterwarnings("ignore::arch_caps.KnownBadWarning")
@pytest.mark.usefixtures("known_bad_is_served")
@pytest.mark.parametrize("op", DENSE + PAGED)
def test_the_grid(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stand_in(monkeypatch, "gfx942", "0.1.20")
    used = run_all([accepted(case) for case in grid.sample(op, 40)], model)
    if op in (Op.SINGLE_PREFILL, Op.SINGLE_DECODE):
        assert min(used[Family.MHA_FWD], used[Family.MHA_VARLEN_FWD]) > 8
    else:
        assert used[Family.MHA_VARLEN_FWD] == sum(used.values()) > 25
    assert {library.key.has_lse for library, _, _ in model.calls} == {False, True}


@pytest.mark.filterwarnings("ignore::arch_caps.KnownBadWarning")
@pytest.mark.usefixtures("known_bad_is_served")
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("op", PAGED)
def test_the_grid_with_pages_of_1024(op: Op, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stand_in(monkeypatch, "gfx942", "0.1.20")
    model.native = native
    sample = [replace(accepted(case), page_size=1024) for case in grid.sample(op, 8)]
    used = run_all(sample, model)
    assert set(used) == {Family.MHA_BATCH_PREFILL if native else Family.MHA_VARLEN_FWD}


@pytest.mark.filterwarnings("ignore::arch_caps.KnownBadWarning")
@pytest.mark.usefixtures("known_bad_is_served")
def test_a_library_with_lse_serves_runs_without(monkeypatch: pytest.MonkeyPatch) -> None:
    model = stand_in(monkeypatch, "gfx942", "0.1.20")
    model.there = {True}
    run_all([replace(accepted(case), return_lse=False) for case in grid.sample(DENSE[0], 20)], model)
    assert all(library.key.has_lse for library, _, _ in model.calls)
    assert model.built == []


@pytest.mark.parametrize("op", DENSE + PAGED)
def test_the_rest_is_refused_by_the_table(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "gfx942", "0.1.20")
    reports = [runner.run(case, "aiter_ck", "gfx942") for case in grid.sample(op, 30)]
    assert {report.outcome for report in reports} == {Outcome.PASSED, Outcome.REFUSED}

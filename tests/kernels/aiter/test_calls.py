"""What AITER's functions are given: every field, for every entry point, mask, dtype and version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kernels.aiter import stub
from tests.kernels.aiter.call_cases import STREAM, Case, call, cases, expected

from rocade_kernels.aiter import calls, search
from rocade_kernels.aiter.errors import CallError, NoKernelError
from rocade_kernels.aiter.names import V3, Family, file_name

Open = Callable[[Family, Case, str], tuple[calls.Library, stub.Stub]]
RUN: dict[Family, Callable[[calls.Library, Any, int], None]] = {
    Family.MHA_FWD: calls.mha_fwd,
    Family.MHA_VARLEN_FWD: calls.mha_varlen_fwd,
    Family.MHA_BATCH_PREFILL: calls.mha_batch_prefill,
    Family.FMHA_V3_FWD: calls.fmha_v3_fwd,
    Family.FMHA_V3_VARLEN_FWD: calls.fmha_v3_varlen_fwd,
}
PLAIN = Case("bf16", causal=True, window_left=-1, has_cap=False, has_lse=True, page_size=16)


def is_native(family: Family, case: Case, version: str) -> bool:
    """Whether AITER of that version has kernels for the page size."""
    sizes = {"0.1.7.post2.dev18": (1,), "0.1.10": (128, 256, 1024)}.get(version, (1, 16, 1024))
    return family is not Family.MHA_BATCH_PREFILL or case.page_size in sizes


def same(got: dict[str, str], want: dict[str, object]) -> None:
    """Compare all fields, numbers as numbers."""
    assert got.keys() == want.keys()
    wrong = {
        name: (got[name], value)
        for name, value in want.items()
        if (float(got[name]) != value if isinstance(value, int | float) else got[name] != value)
    }
    assert not wrong


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """`opened(family, case, version)`: a library that was searched for, and its stub."""
    monkeypatch.setenv("AITER_JIT_DIR", str(tmp_path))
    monkeypatch.setenv("AITER_ASM_DIR", str(tmp_path))

    def open_one(family: Family, case: Case, version: str) -> tuple[calls.Library, stub.Stub]:
        key = case.key(family)
        if not (tmp_path / file_name(key, version)).exists():
            stub.install(tmp_path, key, version)
        path = search.find(key, version)
        return calls.load(path, key, version), stub.Stub(path)

    return open_one


@pytest.mark.parametrize("version", stub.VERSIONS)
@pytest.mark.parametrize("family", [f for f in Family if f not in V3])
def test_every_field_and_the_file_for_every_call(family: Family, version: str, opened: Open) -> None:
    files = set()
    for case in cases(family):
        library, told = opened(family, case, version)
        files.add(library.path.name)
        before = told.calls
        if family is Family.MHA_BATCH_PREFILL and version.startswith("0.1.7"):
            with pytest.raises(CallError, match="pages of one token only"):
                RUN[family](library, call(family, case), STREAM)
            assert told.calls == before
            continue
        if is_native(family, case, version):
            RUN[family](library, call(family, case), STREAM)
        else:
            with pytest.raises(NoKernelError, match="no kernel"):
                RUN[family](library, call(family, case), STREAM)
        assert told.calls == before + 1
        same(told.last, expected(family, case, version))
    assert len(files) == len({case.key(family) for case in cases(family)})


@pytest.mark.parametrize("causal", [False, True])
def test_version_0_1_7_has_pages_of_one_token(opened: Open, causal: bool) -> None:
    family, version = Family.MHA_BATCH_PREFILL, stub.VERSIONS[0]
    for case in cases(family):
        one = case._replace(page_size=1, causal=causal)
        library, told = opened(family, one, version)
        RUN[family](library, call(family, one), STREAM)
        same(told.last, expected(family, one, version))


@pytest.mark.parametrize("version", stub.VERSIONS)
@pytest.mark.parametrize("family", V3)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("has_lse", [False, True])
def test_every_field_for_hand_written_kernels(
    family: Family, version: str, causal: bool, has_lse: bool, opened: Open
) -> None:
    case = PLAIN._replace(causal=causal, has_lse=has_lse, page_size=0)
    library, told = opened(family, case, version)
    plain = call(family, case)
    sizes = {"q_len": 129} if isinstance(plain, calls.Dense) else {}
    RUN[family](library, replace(plain, head_dim_qk=192, head_dim_vo=128, **sizes), STREAM)
    want = expected(family, case, version) | {"hdim_q": 192, "hdim_v": 128}
    same(told.last, want | ({"seqlen_q": 129, "max_seqlen_q": 129} if sizes else {}))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"causal": False}, "needs a mask"),
        ({"lse": None}, "has an LSE"),
        ({"logits_soft_cap": 1.0}, "has a soft cap"),
        ({"num_kv_heads": 5}, "no multiple"),
    ],
)
def test_a_call_that_the_library_is_not_for(change: dict[str, Any], why: str, opened: Open) -> None:
    library, told = opened(Family.MHA_VARLEN_FWD, PLAIN, "0.1.20")
    with pytest.raises(ValueError, match=why):
        calls.mha_varlen_fwd(library, replace(call(Family.MHA_VARLEN_FWD, PLAIN), **change), STREAM)
    with pytest.raises(ValueError, match="is a library of mha_varlen_fwd, not mha_fwd"):
        calls.mha_fwd(library, call(Family.MHA_FWD, PLAIN), STREAM)
    assert told.calls == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"window_left": 3}, "neither a window"),
        ({"logits_soft_cap": 1.0}, "nor a soft cap"),
        ({"head_dim_qk": 64}, "head dims"),
        ({"q_len": 128}, "more than 128 queries"),
        ({"k": calls.Rows(1, 1 << 25, 128, 0)}, "less than 4294967296 bytes"),
        ({"batch": 3, "v": calls.Rows(1, 128, 128, 1 << 30)}, "less than 4294967296 bytes"),
    ],
)
def test_what_hand_written_kernels_do_not_do(change: dict[str, Any], why: str, opened: Open) -> None:
    library, told = opened(Family.FMHA_V3_FWD, PLAIN, "0.1.20")
    plain = replace(call(Family.FMHA_V3_FWD, PLAIN), head_dim_qk=128, head_dim_vo=128, q_len=129)
    with pytest.raises(ValueError, match=why):
        calls.fmha_v3_fwd(library, replace(plain, **change), STREAM)
    assert told.calls == 0


@pytest.mark.parametrize("version", stub.VERSIONS)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"k": calls.Rows(1, 1, 1, 1 << 31)}, "page stride of k is 2147483648"),
        ({"out": calls.Rows(1, 1 << 40, 1)}, "token stride of out"),
        ({"total_q": 1 << 32}, "number of queries"),
        ({"window_left": 1 << 31}, "window_left"),
    ],
)
def test_a_number_beyond_32_bits_is_refused(
    version: str, change: dict[str, Any], why: str, opened: Open
) -> None:
    library, told = opened(Family.MHA_VARLEN_FWD, PLAIN, version)
    with pytest.raises(CallError, match=why):
        calls.mha_varlen_fwd(library, replace(call(Family.MHA_VARLEN_FWD, PLAIN), **change), STREAM)
    assert told.calls == 0


@pytest.mark.parametrize("version", stub.VERSIONS)
def test_any_negative_window_is_none(version: str, opened: Open) -> None:
    case = PLAIN._replace(causal=False)
    library, told = opened(Family.MHA_FWD, case, version)
    calls.mha_fwd(library, replace(call(Family.MHA_FWD, case), window_left=-7), STREAM)
    same(told.last, expected(Family.MHA_FWD, case, version))


@pytest.mark.parametrize("version", stub.VERSIONS)
def test_a_negative_answer_means_no_kernel(version: str, opened: Open) -> None:
    library, told = opened(Family.MHA_FWD, PLAIN, version)
    for answer in (-1.0, float("nan")):
        told.answer(answer)
        with pytest.raises(NoKernelError, match=f"mha_fwd_bf16.*{version}"):
            calls.mha_fwd(library, call(Family.MHA_FWD, PLAIN), STREAM)
    told.answer(0.5)
    calls.mha_fwd(library, call(Family.MHA_FWD, PLAIN), STREAM)
    assert told.calls == 3


@pytest.mark.parametrize("version", stub.VERSIONS)
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (1, "threw std::runtime_error: the stub was told to throw"),
        (2, "threw int"),
        (3, r"threw \(anonymous namespace\)::Odd"),
    ],
)
def test_an_exception_becomes_an_error_and_leaves_nothing(
    version: str, kind: int, text: str, opened: Open
) -> None:
    for family in (Family.MHA_FWD, Family.MHA_BATCH_PREFILL):
        case = PLAIN._replace(page_size=1024 if version == "0.1.10" else 1)
        library, told = opened(family, case, version)
        for count in range(1, 4):
            told.throw(kind)
            with pytest.raises(CallError, match=text):
                RUN[family](library, call(family, case), STREAM)
            assert told.destroyed == 2 * count - 1, "objects of AITER's frames are destroyed"
            told.throw(0)
            RUN[family](library, call(family, case), STREAM)

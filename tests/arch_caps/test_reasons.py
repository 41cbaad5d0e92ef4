"""The gate says every reason, every time, in words that name what was asked and what is accepted."""

from __future__ import annotations

import pickle
import timeit
from dataclasses import replace

import pytest
from tests.arch_caps.helpers import PLAIN, request

import arch_caps
from arch_caps import (
    ROWS,
    TARGETS,
    ArchCapabilityError,
    DType,
    Feature,
    Layout,
    Level,
    MaskKind,
    Op,
    PosEncoding,
    Reason,
    Status,
    _reasons,
    ignores_lengths,
    partial_state_reasons,
    reasons,
)
from arch_caps._target import Has
from arch_caps._types import ATTENTION_OPS

PAGE_SIZE = {Op.BATCH_PREFILL_PAGED: 16, Op.BATCH_DECODE: 16, Op.CASCADE: 16, Op.APPEND_PAGED_KV_CACHE: 16}


def codes(backend: str, target: str = "cpu-x86_64", **changes: object) -> list[str]:
    return [reason.code for reason in reasons(request(**changes), backend=backend, target=target)]


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_plain_requests_are_served_on_the_cpu(op: Op, backend: str) -> None:
    assert codes(backend, op=op, page_size=PAGE_SIZE.get(op, 0)) == []


HARD = {
    "kv_dtype": DType.FP8_E4M3_FNUZ,
    "o_dtype": DType.FP32,
    "num_qo_heads": 7,
    "num_kv_heads": 1,
    "head_dim_qk": 1000,
    "head_dim_vo": 3,
    "kv_layout": Layout.HND,
    "window_left": 0,
    "logits_soft_cap": 30.0,
    "pos_encoding": PosEncoding.ROPE_LLAMA,
    "graph": True,
    "fixed_split_size": 1,
    "disable_split_kv": True,
}


@pytest.mark.parametrize("op", sorted(ATTENTION_OPS))
@pytest.mark.parametrize("target", [*TARGETS, "gfx90a", "sm_89", "xpu"])
def test_torch_serves_everything_everywhere(op: Op, target: str) -> None:
    assert codes("torch", target, op=op, page_size=PAGE_SIZE.get(op, 0), **HARD) == []


def test_a_planned_row_refuses_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    key = (Op.CASCADE, "hip")
    planned = {**ROWS, key: replace(ROWS[key], status=Status.PLANNED)}
    monkeypatch.setattr(_reasons, "ROWS", planned)
    found = reasons(request(op=Op.CASCADE, page_size=16), backend="hip", target="gfx942")
    assert found[0] == Reason("planned", "cascade on backend 'hip' is planned, not built")


def test_who_merges_no_partial_state_says_so() -> None:
    (reason,) = partial_state_reasons(Op.BATCH_PREFILL_PAGED, "aiter_asm")
    assert reason.text.startswith("partial_state is given; accepted: none")
    assert partial_state_reasons(Op.BATCH_PREFILL_PAGED, "hip") == []


def states(target: str, op: Op, dtype: DType, dim: int, **facts: object) -> list[str]:
    types = dict.fromkeys(("q_dtype", "kv_dtype", "o_dtype"), dtype)
    return codes("hip", target, op=op, head_dim_qk=dim, head_dim_vo=dim, **types, **facts)


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_80", "sm_90"])
def test_the_gpu_kernels_take_states_of_any_float_up_to_512(target: str) -> None:
    for dtype in (DType.FP16, DType.BF16, DType.FP32):
        for dim in (8, 264, 512):
            assert states(target, Op.MERGE_STATES, dtype, dim) == []
    for dim in (100, 520):
        assert states(target, Op.MERGE_STATE, DType.FP16, dim) == ["head_dim_qk", "head_dim_vo"]
    assert states(target, Op.MERGE_STATE, DType.FP8_E4M3, 64) == ["q_dtype"]
    assert states(target, Op.APPEND_PAGED_KV_CACHE, DType.FP8_E4M3, 65, page_size=1) == []
    assert states("cpu", Op.MERGE_STATE, DType.FP32, 64) == ["target"]


def test_all_reasons_at_once() -> None:
    found = codes(
        "cpu",
        "gfx942:xnack-",
        head_dim_qk=100,
        head_dim_vo=1024,
        kv_dtype=DType.FP8_E4M3,
        o_dtype=DType.FP32,
        pos_encoding=PosEncoding.ROPE_LLAMA,
    )
    assert found == ["target", "kv_dtype", "o_dtype", "head_dim_qk", "head_dim_vo", "pos_encoding"]


def test_reasons_are_the_same_every_time() -> None:
    bad = request(head_dim_qk=100)
    assert reasons(bad, backend="cpu", target="cpu") == reasons(bad, backend="cpu", target="cpu") != []


def test_a_reason_says_asked_and_accepted() -> None:
    (reason,) = reasons(request(kv_dtype=DType.FP16), backend="cpu", target="cpu-x86_64")
    assert reason.text == "kv_dtype is fp16; accepted: the same as q_dtype, bf16"
    assert reason.source
    assert str(reason) == f"{reason.text} [{reason.source}]"
    assert str(Reason("x", "text")) == "text"


def test_a_custom_mask_over_several_levels_is_refused() -> None:
    for backend in ("cpu", "torch"):
        assert codes(backend, op=Op.CASCADE, num_levels=2, mask=MaskKind.CUSTOM) == ["mask"]


def test_an_unknown_backend_has_no_row() -> None:
    (reason,) = reasons(PLAIN, backend="cuda", target="cpu")
    assert reason.code == "row"
    assert "'cuda'" in reason.text
    assert "batch_decode" in reason.text


@pytest.mark.parametrize("target", ["gfx90a", "sm_89", "", "no such thing"])
def test_an_unknown_target_is_refused_by_kernels(target: str) -> None:
    assert codes("hip", target) == ["target"]
    assert codes("cpu", target) == ["target"]


@pytest.mark.parametrize("level", [Level.ABSENT, Level.UNKNOWN])
def test_a_missing_feature_refuses(monkeypatch: pytest.MonkeyPatch, level: Level) -> None:
    target = TARGETS["gfx942"]
    lacking = tuple(
        Has(has.feature, level, "made up") if has.feature is Feature.MATRIX_BF16 else has
        for has in target.features
    )
    matrix = tuple(m for m in target.matrix if m.in_dtype is not DType.BF16)
    changed = {**TARGETS, "gfx942": replace(target, features=lacking, matrix=matrix)}
    monkeypatch.setattr(_reasons, "TARGETS", changed)
    found = reasons(PLAIN, backend="hip", target="gfx942")
    assert [reason.code for reason in found] == ["feature"]
    assert f"{level} on gfx942" in found[0].text
    assert found[0].source == "made up"
    half = {"q_dtype": DType.FP16, "kv_dtype": DType.FP16, "o_dtype": DType.FP16}
    assert codes("hip", "gfx942", **half) == []


def test_an_emulated_feature_is_enough() -> None:
    assert TARGETS["gfx942"].level(Feature.BF16_CONVERT) is Level.EMULATED


def test_the_error_is_both_kinds_and_lists_everything() -> None:
    bad = request(head_dim_qk=100, head_dim_vo=100)
    refusals = {b: reasons(bad, backend=b, target="gfx942") for b in ("hip", "cpu")}
    error = ArchCapabilityError(bad, refusals)
    assert isinstance(error, ValueError)
    assert isinstance(error, RuntimeError)
    assert error.request is bad
    for backend, found in refusals.items():
        assert f"  {backend}:\n" in str(error)
        assert all(f"    - {reason}" in str(error) for reason in found)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.request, copy.refusals) == (str(error), bad, error.refusals)


def test_the_gate_costs_microseconds() -> None:
    """The budget is 10 us a request; the best of several rounds is compared with twice that."""
    times = timeit.repeat(lambda: reasons(PLAIN, backend="cpu", target="cpu"), number=500, repeat=7)
    assert min(times) / 500 < 20e-6


def test_rows_that_ask_about_lengths_are_told_from_those_that_do_not() -> None:
    assert not ignores_lengths(Op.BATCH_DECODE, "cpu")
    for op in ATTENTION_OPS:
        assert ignores_lengths(op, "hip")
        assert ignores_lengths(op, "torch")
    for op, backend in arch_caps.DEFECTS:
        assert not ignores_lengths(op, backend)


@pytest.mark.parametrize("backend", ["hip", "torch"])
@pytest.mark.parametrize("target", ["gfx942", "sm_90", "cpu-x86_64"])
def test_lengths_change_no_answer_of_rows_that_ignore_them(backend: str, target: str) -> None:
    for op in ATTENTION_OPS:
        plain = request(op=op, page_size=PAGE_SIZE.get(op, 0))
        answers = {
            tuple(
                map(str, reasons(replace(plain, max_qo_len=n, max_kv_len=m), backend=backend, target=target))
            )
            for n in (None, 0, 1, 2**31 - 1)
            for m in (None, 0, 511, 512, 2**31 - 1)
        }
        assert len(answers) == 1

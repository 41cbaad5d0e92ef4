"""The choice of a backend: order, every reason, names of other libraries, one log line a decision."""

from __future__ import annotations

import logging

import pytest
import torch
from tests.rocade.batches import SIZES, Batch, workspace

import arch_caps
import rocade
from arch_caps import ArchCapabilityError, Op, Reason, Request
from rocade import _device, _dispatch, _request
from rocade._place import Place

CPU = torch.device("cpu")
HERE = _device.place(CPU)


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts as a new process does: nothing logged, no backend found."""
    monkeypatch.setattr(_dispatch, "_logged", set())
    monkeypatch.setattr(_dispatch, "_found", {})
    monkeypatch.setattr(_dispatch, "_settled", {})
    monkeypatch.setattr(_dispatch, "_planned", {})


def request_for(**given: object) -> Request:
    plain = {"num_qo_heads": 8, "num_kv_heads": 2, "head_dim_qk": 64, "q_dtype": "float32", "page_size": 16}
    return _request.attention(Op.BATCH_DECODE, **{**plain, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["auto", "fa2", "native"])
def test_flashinfers_portable_names_leave_the_choice_to_the_table(name: str) -> None:
    assert _dispatch.canonical(name) == "auto"


@pytest.mark.parametrize("name", ["fa3", "cutlass", "trtllm-gen", "cudnn", "cute-dsl"])
def test_names_of_nvidia_kernels_are_refused_as_such(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"backend: got '{name}', which names an NVIDIA kernel, expected 'auto'"
    ):
        rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=name)


@pytest.mark.parametrize("name", ["", "fa22", "CPU", None])
def test_an_unknown_name_is_refused_by_every_wrapper(name: str) -> None:
    for make in (
        rocade.BatchDecodeWithPagedKVCacheWrapper,
        rocade.BatchPrefillWithPagedKVCacheWrapper,
        rocade.BatchPrefillWithRaggedKVCacheWrapper,
    ):
        with pytest.raises(ValueError, match=r"^backend: got"):
            make(workspace(), backend=name)
    q = torch.randn(1, 2, 16)
    with pytest.raises(ValueError, match=r"^backend: got"):
        rocade.single_prefill_with_kv_cache(q, q, q, backend=name)


def test_the_first_backend_without_a_reason_serves() -> None:
    asked = _dispatch.verdicts(request_for(), HERE)
    assert tuple(v.backend for v in asked) == arch_caps.preference("cpu-x86_64")
    serving = next(v.backend for v in asked if not v.reasons)
    assert _dispatch.select(request_for(), CPU).name == serving


def test_a_pinned_backend_is_used() -> None:
    assert _dispatch.select(request_for(), CPU, "torch").name == "torch"


def test_a_refusal_lists_every_reason_of_every_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = [Reason("page_size", "first reason"), Reason("mask", "second reason", "a source")]
    monkeypatch.setattr(arch_caps, "reasons", lambda request, **_: reasons)
    with pytest.raises(ArchCapabilityError) as caught:
        _dispatch.select(request_for(), CPU)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RuntimeError)
    assert set(caught.value.refusals) == set(arch_caps.preference("cpu-x86_64"))
    for part in ("batch_decode", "cpu:", "torch:", "first reason", "second reason [a source]"):
        assert part in str(caught.value)


def test_a_pinned_backend_that_refuses_is_an_error_even_if_another_would_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        arch_caps, "reasons", lambda request, *, backend, **_: [Reason("x", "no")] if backend == "cpu" else []
    )
    with pytest.raises(ArchCapabilityError) as caught:
        _dispatch.select(request_for(), CPU, "cpu")
    assert list(caught.value.refusals) == ["cpu"]
    assert _dispatch.select(request_for(), CPU).name == "torch"


@pytest.mark.parametrize("name", ["aiter", "aiter_asm", "aiter_ck"])
def test_a_family_and_its_members_may_be_asked_for(name: str) -> None:
    assert _dispatch.canonical(name) == name
    told = [v.backend for v in _dispatch.verdicts(request_for(), "gfx942", name)]
    assert told == list(arch_caps.members(name))


def test_a_family_serves_by_its_first_member_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arch_caps, "FAMILIES", {"both": ("cpu", "torch")})
    monkeypatch.setattr(arch_caps, "members", lambda name: ("cpu", "torch"))
    monkeypatch.setattr(_dispatch, "OURS", ("both",))
    monkeypatch.setattr(
        arch_caps, "reasons", lambda request, *, backend, **_: [Reason("x", "no")] if backend == "cpu" else []
    )
    _dispatch._candidates.cache_clear()
    assert _dispatch.select(request_for(), CPU, "both").name == "torch"
    monkeypatch.setattr(arch_caps, "reasons", lambda request, **_: [Reason("x", "no")])
    with pytest.raises(ArchCapabilityError) as caught:
        _dispatch.select(request_for(), CPU, "both")
    assert list(caught.value.refusals) == ["cpu", "torch"]
    _dispatch._candidates.cache_clear()


def test_what_this_machine_adds_to_the_table_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = _dispatch.REGISTRY["cpu"]
    asked = []

    def refuses(request: Request, place: Place) -> list[Reason]:
        asked.append((request, place))
        return [Reason("defect", "was wrong here")]

    monkeypatch.setattr(backend, "refuses", refuses, raising=False)
    request = request_for()
    assert _dispatch.select(request, CPU).name == "torch"
    assert asked == [(request, HERE)]
    assert "was wrong here" in str(rocade.explain("batch_decode", q_dtype="float32"))


def test_a_choice_that_lengths_cannot_change_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    reasons = arch_caps.reasons

    def count(request: Request, *, backend: str, **options: object) -> list[Reason]:
        asked.append(backend)
        return reasons(request, backend=backend, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(arch_caps, "reasons", count)
    for keys in (1, 2, 3):
        assert _dispatch.select(request_for(max_kv_len=keys), CPU, "torch").name == "torch"
    assert asked == ["torch"]
    _dispatch.select(request_for(max_kv_len=1, window_left=7), CPU, "torch")
    assert asked == ["torch"] * 2
    for keys in (1, 2):  # a row that asks about lengths
        assert _dispatch.select(request_for(max_kv_len=keys), CPU, "cpu").name == "cpu"
    assert asked[2:] == ["cpu", "cpu"]
    with pytest.raises(ArchCapabilityError):
        _dispatch.select(request_for(max_kv_len=2**31 - 1), CPU, "cpu")


def test_a_choice_that_was_made_is_still_refused_by_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _dispatch.select(request_for(), CPU, "torch").name == "torch"
    backend = _dispatch.REGISTRY["torch"]
    monkeypatch.setattr(backend, "refuses", lambda *_: [Reason("defect", "broke")], raising=False)
    with pytest.raises(ArchCapabilityError, match="broke"):
        _dispatch.select(request_for(), CPU, "torch")


def test_a_backend_that_is_not_in_this_version_says_so() -> None:
    assert [r.code for r in _dispatch.absent("no such backend", HERE)] == ["absent"]


def test_a_backend_whose_import_fails_is_absent_not_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            if name == "cpu":
                raise ImportError("libfoo.so is missing")
            return real[name]

    real = _dispatch.REGISTRY
    monkeypatch.setattr(_dispatch, "REGISTRY", Broken.fromkeys(real))
    assert _dispatch.select(request_for(), CPU).name == "torch"
    (reason,) = _dispatch.absent("cpu", HERE)
    assert "libfoo.so is missing" in reason.text


def test_each_new_decision_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        arch_caps,
        "reasons",
        lambda request, *, backend, **_: [Reason("mask", "why not")] if backend == "cpu" else [],
    )
    with caplog.at_level(logging.INFO, "rocade"):
        for length in (1, 2, 3):
            _dispatch.select(request_for(max_kv_len=length), CPU)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    for part in ("batch_decode", "'torch'", "cpu: why not"):
        assert part in record.getMessage()


def test_a_missing_backend_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Unbuilt:
        name = "cpu"

        def absent(self, place: Place) -> list[Reason]:
            return [Reason("absent", "not built")]

    monkeypatch.setattr(arch_caps, "reasons", lambda request, **_: [])
    monkeypatch.setattr(_dispatch, "REGISTRY", {"cpu": Unbuilt(), "torch": _dispatch.REGISTRY["torch"]})
    assert _dispatch.select(request_for(), CPU).name == "torch"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "cpu: not built" in record.getMessage()


def test_defects_are_judged_by_this_process_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        arch_caps, "reasons", lambda request, **given: asked.append(given.get("toolchain")) or []
    )
    monkeypatch.setattr(torch.version, "hip", "7.2.1")
    monkeypatch.setattr(_device, "toolchain", _device.toolchain.__wrapped__)
    _dispatch.verdicts(request_for(), HERE, "torch")
    _dispatch.verdicts(request_for(), "gfx942", "torch")
    assert asked == [arch_caps.Toolchain(rocm="7.2.1", aiter=None), None]


def test_targets_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _device.target(CPU) in ("cpu-x86_64", "cpu-generic")
    assert _device.target(torch.device("meta")) == "meta"
    assert _dispatch.verdicts(request_for(), _device.place(torch.device("meta")))[-1].backend == "torch"

    class Properties:
        gcnArchName = "gfx942:sramecc+:xnack-"  # noqa: N815 -- torch's name
        major, minor = 9, 0

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    for version, expected in (("7.0", "gfx942"), (None, "sm_90")):
        monkeypatch.setattr(torch.version, "hip", version)
        assert _device._target(torch.device("cuda", 0)) == expected


def test_explain_a_described_call() -> None:
    told = rocade.explain("batch_decode", q_dtype="bfloat16", num_qo_heads=64, kv_layout="HND")
    assert told.request.kv_layout is arch_caps.Layout.HND
    assert told.backend in arch_caps.preference("cpu")
    assert f"runs on backend {told.backend!r}" in str(told)
    for op in Op:
        assert rocade.explain(op.value).request.op is op


def test_explain_knows_a_fact_by_the_name_that_plan_gives_it() -> None:
    told = rocade.explain("batch_decode", head_dim=64, q_data_type="bfloat16", kv_data_type="float16")
    assert (told.request.head_dim_qk, told.request.head_dim_vo) == (64, 64)
    assert (told.request.q_dtype, told.request.kv_dtype) == (arch_caps.DType.BF16, arch_caps.DType.FP16)


def test_explain_says_which_size_the_native_library_cannot_count() -> None:
    for facts, named in (
        ({"num_qo_heads": 2**17}, "num_qo_heads is 131072; accepted: up to 65536"),
        ({"page_size": 2**31 - 1}, "page_size is 2147483647; accepted: from 1 to 2147418111"),
        ({"max_kv_len": 2**31 - 1}, "max_kv_len is 2147483647; accepted: not set, or up to 2147418111"),
    ):
        told = rocade.explain("batch_decode", backend="cpu", **facts)
        assert told.backend is None
        assert named in str(told)
    batch = Batch([1], [5])
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend="cpu")
    with pytest.raises(rocade.ArchCapabilityError, match="num_qo_heads is 131072; accepted: up to 65536"):
        wrapper.plan(*batch.pages.table, 2**17, 1, 8, 4)


def test_explain_another_target_without_asking_this_machine() -> None:
    told = rocade.explain("batch_decode", target="gfx950")
    assert told.target == "gfx950"
    assert [v.backend for v in told.verdicts] == list(arch_caps.preference("gfx950"))
    assert all(r.code != "absent" for v in told.verdicts for r in v.reasons)


def test_explain_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arch_caps, "reasons", lambda request, **_: [Reason("x", "never")])
    told = rocade.explain("cascade", num_levels=3)
    assert told.backend is None
    assert "is refused by every backend" in str(told)
    assert "no: never" in str(told)


def test_explain_a_planned_wrapper() -> None:
    batch = Batch([1, 1], [5, 6])
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend="torch")
    with pytest.raises(rocade.NotPlannedError):
        rocade.explain(wrapper)
    wrapper.plan(*batch.pages.table, *SIZES, 4, q_data_type="float32")
    told = rocade.explain(wrapper)
    assert (told.backend, told.request.op) == ("torch", Op.BATCH_DECODE)


@pytest.mark.parametrize(
    ("call", "facts", "named"),
    [
        ("decode", {}, "call: got 'decode', expected a wrapper, or one of single_prefill"),
        (3, {}, "call: got 3"),
        ("batch_decode", {"nonsense": 1}, "nonsense"),
        ("batch_decode", {"num_qo_heads": 7}, "num_qo_heads"),
        ("batch_decode", {"kv_layout": "x"}, "kv_layout"),
        ("batch_decode", {"backend": "fa9"}, "backend"),
        ("batch_decode", {"num_heads": 8}, "num_heads: got a fact that 'batch_decode' does not have"),
        ("batch_decode", {"max_kv_len": "long"}, "max_kv_len: got 'long', expected an integer"),
        ("merge_state", {"head_dim_vo": 8}, "head_dim_vo: got a fact that 'merge_state' does not have"),
        ("append_paged_kv_cache", {"causal": True}, "causal: got a fact that"),
    ],
)
def test_explain_names_what_it_cannot_read(call: str, facts: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        rocade.explain(call, **facts)  # type: ignore[arg-type]


def merge_request() -> Request:
    return _request.states(Op.MERGE_STATE, dtype=torch.float32, num_heads=2, head_dim=16)


def test_a_settled_choice_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    request = merge_request()
    first = _dispatch.select(request, CPU)
    monkeypatch.setattr(arch_caps, "reasons", lambda *_, **__: pytest.fail("asked again"))
    assert _dispatch.select(request, CPU) is first


def test_a_choice_that_a_setting_may_change_is_made_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    request = merge_request()
    first = _dispatch.select(request, CPU).name
    monkeypatch.setattr(_dispatch, "_settled", {})
    monkeypatch.setattr(_dispatch, "_planned", {})
    monkeypatch.setattr(arch_caps, "DEFECTS", {(Op.MERGE_STATE, first): ()})
    assert _dispatch.select(request, CPU).name == first
    refused = [Reason("defect", "known bad")]
    monkeypatch.setattr(arch_caps, "reasons", lambda *_, backend, **__: refused if backend == first else [])
    assert _dispatch.select(request, CPU).name != first


def test_attention_is_asked_at_every_plan() -> None:
    request = merge_request()
    _dispatch.select(request, CPU)
    settled = set(_dispatch._settled)
    assert settled
    _dispatch.select(request_for(), CPU)
    assert set(_dispatch._settled) == settled  # attention is planned once, and its requests are many


def test_choices_are_remembered_for_the_place_and_the_name_asked_for() -> None:
    request = merge_request()
    assert _dispatch.select(request, CPU, "torch").name == "torch"
    assert _dispatch.select(request, CPU).name != "torch"
    with rocade.emulate("gfx942"):
        assert _dispatch.select(request, CPU).name == "hip"

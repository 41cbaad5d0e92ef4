"""Who serves what AITER may serve: one dispatch for `auto` and `aiter`, and every reason against it told."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from tests.rocade.backends.aiter.model import Aiter, on_gpu, stand_in

import arch_caps
import rocade
from arch_caps import ArchCapabilityError, Op, Reason, Request
from rocade import _device, _dispatch, _request
from rocade._place import Place
from rocade.backends.aiter.bootstrap import BootstrapError
from rocade.backends.aiter.ck import BACKEND
from rocade.backends.aiter.ck._libraries import family_of
from rocade.backends.aiter.ck._stream import check_not_capturing
from rocade_kernels.aiter import calls
from rocade_kernels.aiter.errors import NoKernelError
from rocade_kernels.aiter.names import Family

CPU = torch.device("cpu")
BF16 = torch.bfloat16


def attention(op: Op = Op.SINGLE_PREFILL, **facts: object) -> Request:
    plain = {"num_qo_heads": 4, "num_kv_heads": 2, "head_dim_qk": 128, "q_dtype": "bfloat16"}
    lengths = {"max_qo_len": 96, "max_kv_len": 160}
    return _request.attention(op, **{**plain, **lengths, **facts})  # type: ignore[arg-type]


def reasons(request: Request, backend: str) -> dict[str, list[str]]:
    told = _dispatch.verdicts(request, _device.place(CPU), backend)
    return {verdict.backend: [reason.code for reason in verdict.reasons] for verdict in told}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Aiter:
    return stand_in(monkeypatch, "gfx942", "0.1.20")


WINDOW = {"causal": False, "window_left": 31}


@pytest.mark.parametrize("op", [Op.SINGLE_PREFILL, Op.BATCH_PREFILL_RAGGED])
@pytest.mark.usefixtures("model")
def test_a_window_without_causal_goes_where_the_table_says(op: Op) -> None:
    """The assembly kernels have no window; hip comes first, and AITER's libraries have one with a mask."""
    order = list(reasons(attention(op, **WINDOW), "auto"))
    assert order == list(arch_caps.preference("gfx942"))
    told = arch_caps.reasons(attention(op, **WINDOW), backend="aiter_asm", target="gfx942")
    assert "window_left" in [reason.code for reason in told]
    assert reasons(attention(op, **WINDOW), "aiter_ck") == {"aiter_ck": []}


def test_a_window_without_causal_routes_to_hip_in_the_emulator() -> None:
    facts = {"q_dtype": "bfloat16", "max_qo_len": 96, "max_kv_len": 160, **WINDOW}
    with rocade.emulate("gfx942"):
        assert rocade.explain("single_prefill", **facts).backend == "hip"
        told = rocade.explain("single_prefill", backend="aiter", **facts)
    assert told.backend is None
    assert "window_left is 31; accepted: -1" in str(told)


def test_auto_takes_hip_and_the_family_takes_aiter_for_the_same_request(
    model: Aiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dispatch.REGISTRY["hip"], "absent", lambda place: [], raising=False)
    request = attention(**WINDOW)
    assert _dispatch.select(request, CPU, "auto").name == "hip"
    assert _dispatch.select(request, CPU, "aiter").name == "aiter_ck"


def test_auto_and_the_family_give_aiter_the_same_reasons(model: Aiter) -> None:
    for facts in ({}, {"pos_encoding_mode": "ALIBI"}, {"q_dtype": "float32"}, {"kv_dtype": "float8_e4m3fn"}):
        request = attention(**facts)
        auto, family = reasons(request, "auto"), reasons(request, "aiter")
        assert {name: auto[name] for name in family} == family


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"pos_encoding_mode": "ROPE_LLAMA"}, "pos_encoding"),
        ({"pos_encoding_mode": "ALIBI"}, "pos_encoding"),
        ({"custom_mask": True}, "mask"),
        ({"kv_dtype": "float8_e4m3fnuz"}, "kv_dtype"),
        ({"q_dtype": "float32"}, "q_dtype"),
        ({"o_dtype": "float32"}, "o_dtype"),
        ({"head_dim_vo": 64}, "head_dim_vo"),
        ({"head_dim_qk": 264}, "head_dim_qk"),
        ({"head_dim_qk": 100}, "head_dim_qk"),
        ({"op": Op.BATCH_DECODE, "page_size": 16, "kv_layout": arch_caps.Layout.HND}, "kv_layout"),
        ({"op": Op.BATCH_DECODE, "page_size": 16, "graph": True}, "graph"),
        ({"op": Op.BATCH_DECODE, "page_size": 16, "fixed_split_size": 4}, "fixed_split_size"),
    ],
    ids=str,
)
def test_what_aiter_would_drop_or_get_wrong_is_refused(facts: dict[str, object], code: str) -> None:
    assert code in reasons(attention(**facts), "aiter_ck")["aiter_ck"]


@pytest.mark.usefixtures("model")
def test_sinks_and_scales_per_head_are_refused() -> None:
    q, k = torch.zeros(4, 4, 128, dtype=BF16), torch.zeros(9, 2, 128, dtype=BF16)
    with pytest.raises(ValueError, match="scale_k"):
        rocade.single_prefill_with_kv_cache(q, k, k, scale_k=torch.ones(2), backend="aiter_ck")
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(
        torch.empty(1 << 20, dtype=torch.uint8), backend="aiter_ck"
    )
    indptr, one = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
    wrapper.plan(indptr, one - 1, one, 4, 2, 128, 16, q_data_type=BF16)
    cache = torch.zeros(1, 2, 16, 2, 128, dtype=BF16)
    with pytest.raises(NotImplementedError, match="sinks"):
        wrapper.run(q[:1], cache, sinks=torch.zeros(4))


def test_scales_are_applied(model: Aiter) -> None:
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(n, h, 128, generator=generator).to(BF16) for n, h in ((4, 4), (9, 2), (9, 2)))
    given = {"scale_q": 0.5, "k_scale": 3.0, "v_scale": 0.25, "sm_scale": 0.1}
    out = rocade.single_prefill_with_kv_cache(q, k, v, **given, backend="aiter_ck")
    ((_, call, _),) = model.calls
    assert call.scale == pytest.approx(0.15)
    expected = rocade.single_prefill_with_kv_cache(q, k, v * 0.25, sm_scale=0.15, backend="torch")
    torch.testing.assert_close(out.float(), expected.float(), atol=5e-3, rtol=2e-2)


@pytest.mark.parametrize("scale", [0.0, -0.1, -3.0])
def test_aiter_gets_a_scale_above_zero(scale: float, model: Aiter) -> None:
    """It takes the largest product before it scales, and hides keys by products of -inf."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(n, h, 128, generator=generator).to(BF16) for n, h in ((4, 4), (9, 2), (9, 2)))
    given = {"causal": True, "sm_scale": scale, "return_lse": True}
    out, lse = rocade.single_prefill_with_kv_cache(q, k, v, **given, backend="aiter_ck")
    ((_, call, _),) = model.calls
    assert call.scale > 0
    expected = rocade.single_prefill_with_kv_cache(q, k, v, **given, backend="torch")
    torch.testing.assert_close(out.float(), expected[0].float(), atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(lse, expected[1], atol=1e-3, rtol=1e-3)


def test_a_negative_answer_is_an_error(model: Aiter, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise NoKernelError("AITER has no kernel")

    monkeypatch.setattr(calls, "mha_fwd", none)
    q = torch.zeros(4, 2, 128, dtype=BF16)
    with pytest.raises(NoKernelError, match="no kernel"):
        rocade.single_prefill_with_kv_cache(q, q, q, backend="aiter_ck")


def test_what_is_wrong_on_this_machine_is_refused_and_told(model: Aiter) -> None:
    model.wrong = (Reason("defect", "mha_fwd_x.so is not used: off by 3"),)
    model.there = {True}
    assert reasons(attention(), "aiter_ck") == {"aiter_ck": ["defect"]}
    told = str(rocade.explain("single_prefill", backend="aiter", q_dtype="bfloat16"))
    assert "off by 3" in told
    assert "aiter_asm" in told
    model.there = {False, True}  # the one without LSE is right, and serves runs without
    assert reasons(attention(), "aiter_ck") == {"aiter_ck": []}


def plan_pages(page_size: int, **given: object) -> str:
    """Backend of a paged prefill of 9 queries over 300 keys."""
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(1 << 20, dtype=torch.uint8), backend="aiter"
    )
    pages = -(-300 // page_size)
    indptr, last = ([0, pages], [300 - (pages - 1) * page_size])
    arrays = [torch.tensor(x, dtype=torch.int32) for x in ([0, 9], indptr, list(range(pages)), last)]
    wrapper.plan(*arrays, 4, 2, 128, page_size, q_data_type=BF16, **given)
    return wrapper.backend


def test_a_partial_state_is_refused_by_the_run(model: Aiter) -> None:
    """Merged into a result of 16 bits, it would be rounded twice, which is more than the contract allows."""
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(1 << 20, dtype=torch.uint8), backend="aiter_ck"
    )
    one = torch.tensor([0, 1], dtype=torch.int32)
    wrapper.plan(one, one, one[:1], one[1:], 4, 2, 128, 16, q_data_type=BF16)
    q, cache = torch.zeros(1, 4, 128, dtype=BF16), torch.zeros(1, 2, 16, 2, 128, dtype=BF16)
    with pytest.raises(ArchCapabilityError, match="partial_state is given"):
        wrapper.run(q, cache, partial_state=(q, torch.zeros(1, 4)))
    assert model.calls == []


def test_strict_mode_raises_where_pages_would_be_gathered(
    model: Aiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plan_pages(16) == "aiter_ck"
    monkeypatch.setenv("FLASHINFER_AITER_STRICT", "1")
    with pytest.raises(ArchCapabilityError, match=r"FLASHINFER_AITER_STRICT is set.*pages of 16 tokens"):
        plan_pages(16)
    assert plan_pages(1024) == "aiter_ck"
    model.native, model.asked_native = False, False
    with pytest.raises(BootstrapError, match="no kernel for such pages"):
        plan_pages(1024)
    with pytest.raises(ArchCapabilityError) as caught:
        plan_pages(1024)
    codes = [reason.code for reason in caught.value.refusals["aiter_ck"]]
    assert codes == ["build", "page_size"]  # the missing kernel, and the gather that strict mode forbids


def test_pages_that_turn_out_not_to_be_native_are_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """mha_batch_prefill is exact with a soft cap, mha_varlen_fwd on gathered keys is not."""
    model = stand_in(monkeypatch, "gfx950", "0.1.20")
    facts = {"causal": True, "logits_soft_cap": 30.0}
    assert plan_pages(1024, **facts) == "aiter_ck"
    model.native = False
    with pytest.raises(ArchCapabilityError, match="aiter-softcap-causal-hd128-gfx950"):
        plan_pages(1024, **facts)


def test_pages_that_are_not_native_are_gathered_by_every_plan(model: Aiter) -> None:
    model.native = False
    for _ in range(3):
        assert plan_pages(1024) == "aiter_ck"
    model.wrong, model.wrong_families = (Reason("build", "no compiler"),), (Family.MHA_VARLEN_FWD,)
    model.there = {True}
    with pytest.raises(ArchCapabilityError, match="no compiler"):
        plan_pages(1024)


@pytest.fixture
def unbuildable(model: Aiter, monkeypatch: pytest.MonkeyPatch) -> Aiter:
    """No library is there and none can be built, which only the first plan finds out; hip is absent."""
    hip = _dispatch.REGISTRY["hip"]
    monkeypatch.setattr(hip, "absent", lambda place: [Reason("absent", "no driver")], raising=False)
    model.there, model.unbuildable = set(), True
    return model


SMALL = torch.zeros(4, 2, 128, dtype=BF16)


def test_auto_passes_over_a_library_that_cannot_be_built(
    unbuildable: Aiter, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert rocade.single_prefill_with_kv_cache(SMALL, SMALL, SMALL).shape == SMALL.shape
    assert unbuildable.calls == []
    assert "no compiler" in caplog.text
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(torch.empty(1 << 20, dtype=torch.uint8))
    one = torch.tensor([0, 1], dtype=torch.int32)
    wrapper.plan(one, one[:1], one[1:], 4, 2, 128, 16, q_data_type=BF16)
    assert wrapper.backend == "torch"


def test_a_library_that_cannot_be_built_is_an_error_where_aiter_was_asked_for(unbuildable: Aiter) -> None:
    for error in (BootstrapError, ArchCapabilityError):  # the second time, it is known before the plan
        with pytest.raises(error, match="no compiler"):
            rocade.single_prefill_with_kv_cache(SMALL, SMALL, SMALL, backend="aiter_ck")
    unbuildable.wrong = ()
    with pytest.raises(ArchCapabilityError, match="no compiler"):
        rocade.single_prefill_with_kv_cache(SMALL, SMALL, SMALL, backend="aiter")


def test_strict_mode_passes_over_nothing(unbuildable: Aiter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHINFER_AITER_STRICT", "1")
    with pytest.raises(BootstrapError, match="no compiler"):
        rocade.single_prefill_with_kv_cache(SMALL, SMALL, SMALL)
    with pytest.raises(ArchCapabilityError, match="no compiler"):
        rocade.single_prefill_with_kv_cache(SMALL, SMALL, SMALL)


def test_another_error_of_a_plan_is_not_passed_over(model: Aiter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(BACKEND, "plan", fails, raising=False)
    with pytest.raises(RuntimeError, match="out of memory"):
        rocade.single_prefill_with_kv_cache(SMALL, SMALL, SMALL, backend="aiter")


@pytest.mark.parametrize(
    ("version", "page_size", "in_place"),
    [
        ("0.1.7", 1024, False),  # knows pages of one token only
        ("0.1.10", 1024, True),
        ("0.1.10.post2", 1024, False),  # its struct is not known
        ("0.1.11", 1024, True),  # its page sizes are not known: the probe tells
        ("0.1.20", 1024, True),
        ("0.1.20", 16, False),  # could be, and a gather is no slower
        ("0.1.20", 1, False),
    ],
)
def test_which_pages_are_read_in_place(
    version: str, page_size: int, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu(monkeypatch, "gfx942", version)
    for op in (Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE):
        family = family_of(attention(op, page_size=page_size))
        assert family is (Family.MHA_BATCH_PREFILL if in_place else Family.MHA_VARLEN_FWD)


@pytest.mark.parametrize("version", ["0.1.8", "0.2", "junk"])
def test_an_unknown_version_is_absent_and_named(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu(monkeypatch, "gfx942", version)
    (reason,) = BACKEND.absent(_device.place(CPU))
    assert version in reason.text
    assert "ROCADE_AITER_VERSION" in reason.text


def test_the_emulator_cannot_run_libraries() -> None:
    (reason,) = BACKEND.absent(Place("gfx942", emulated=True))
    assert "emulator" in reason.text


def test_no_plan_is_made_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    for capturing in (False, True):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda answer=capturing: answer)
        check_not_capturing(CPU)
        with pytest.raises(RuntimeError, match="captured") if capturing else nullcontext():
            check_not_capturing(torch.device("cuda", 0))

"""Calls of one request on an idle GPU: planned once for a kind of call, thread and stream, then repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.rocade.backends.idle_driver import Driver
from tests.rocade.backends.run_changes import half
from tests.rocade.backends.single_calls import DIM, HEADS, Call, decode, driven, fields, made_plans, prefill

import rocade
from rocade import _single
from rocade.backends.hip import _dlpack
from rocade.backends.hip._attention import AttentionPlan
from rocade_kernels import hip_abi

pytestmark = pytest.mark.skipif(not _dlpack.read_address(), reason="this torch has no DLPack exchange table")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with driven(monkeypatch) as made:
        yield made


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[AttentionPlan]:
    return made_plans(monkeypatch)


@pytest.mark.parametrize("lse", [True, False])
@pytest.mark.parametrize("call", [prefill, decode])
def test_a_repeated_call_launches_what_a_planned_one_does(
    driver: Driver, plans: list[AttentionPlan], monkeypatch: pytest.MonkeyPatch, call: Call, lse: bool
) -> None:
    torch.manual_seed(0)
    given = call.__name__ == "decode"
    tensors = (half(HEADS[0], DIM) if given else half(20, HEADS[0], DIM), *(half(3000, 2, DIM) for _ in "kv"))
    made = rocade.single_decode_with_kv_cache if given else rocade.single_prefill_with_kv_cache
    call(return_lse=lse)
    assert [name.split("-")[0] for name, *_ in driver.taken()] == ["attention", "merge_partials"]
    calls = []
    monkeypatch.setattr(_single, "attend", lambda *a, **o: calls.append(a) or attend(*a, **o))
    options: dict[str, Any] = {"return_lse": lse, "v_scale": 0.5} | ({} if given else {"causal": True})
    repeated = made(*tensors, **options)
    blocks = driver.taken()
    assert not calls
    assert len(plans) == 1
    monkeypatch.setattr(AttentionPlan, "repeat", lambda *_: False)
    ordinary = made(*tensors, **options)
    assert len(calls) == len(plans) == 1
    results = [x if lse else (x,) for x in (repeated, ordinary)]
    for a, b in zip(*results, strict=True):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
    mine, theirs = fields(blocks), fields(driver.taken())
    outs = ("out", "lse")
    for (name, numbers, block), (name2, numbers2, block2) in zip(mine, theirs, strict=True):  # type: ignore[misc]
        assert (name, numbers) == (name2, numbers2)
        assert {f: x for f, x in block.items() if f not in outs} == {
            f: x for f, x in block2.items() if f not in outs
        }
        assert block["out"] == results[0][0].data_ptr()
        assert block["lse"] == (results[0][1].data_ptr() if lse else None)


attend = _single.attend


def test_partial_results_are_in_memory_of_the_call(driver: Driver) -> None:
    prefill()
    driver.taken()
    kept = []
    empty = torch.empty

    def keep(*given: Any, **options: Any) -> torch.Tensor:
        made = empty(*given, **options)
        kept.append(made)
        return made

    torch.empty = keep  # type: ignore[assignment]
    try:
        prefill()
        prefill()
    finally:
        torch.empty = empty
    blocks = [hip_abi.AttentionArgs.from_buffer_copy(block) for _, _, block in driver.taken()[::2]]
    assert blocks[0].partial_out != blocks[1].partial_out
    for block in blocks:
        home = next(t for t in kept if t.data_ptr() == block.partial_out)
        assert block.partial_lse < home.data_ptr() + home.numel()


DIFFERENT: dict[str, dict[str, Any]] = {
    "causal": {"causal": False},
    "window": {"window_left": 5},
    "scale": {"sm_scale": 0.5},
    "cap": {"logits_soft_cap": 20.0},
    "rows": {"rows": 21},
    "keys": {"keys": 3001},
    "no lse": {"return_lse": False},
    "backend": {"backend": "hip"},
}


@pytest.mark.parametrize("change", DIFFERENT)
def test_other_calls_have_plans_of_their_own(driver: Driver, plans: list[AttentionPlan], change: str) -> None:
    for _ in range(2):
        prefill()
        prefill(**DIFFERENT[change])
    assert len(plans) == 2
    one, other = fields(driver.taken()[:2]), plans[1].request
    assert one
    assert other != plans[0].request or change in ("no lse", "backend")


def test_heads_first_is_another_call_with_other_strides(driver: Driver, plans: list[AttentionPlan]) -> None:
    q, k = half(20, HEADS[0], DIM), half(2, 2, DIM)
    for layout in ("NHD", "HND") * 2:
        rocade.single_prefill_with_kv_cache(q, k, k, kv_layout=layout)
    assert len(plans) == 2
    rows = [hip_abi.AttentionArgs.from_buffer_copy(block).k_row for _, _, block in driver.taken()]
    assert rows[0] == rows[2] != rows[1] == rows[3]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"causal": True, "window_left": -1.0}, "window_left"),
        ({"causal": True, "window_left": "all"}, "window_left"),
        ({"causal": True, "sm_scale": "1"}, "sm_scale"),
        ({"causal": True, "sm_scale": float("nan")}, "sm_scale"),
        ({"causal": True, "v_scale": float("inf")}, "v_scale"),
        ({"causal": True, "backend": "fa3"}, "backend"),
        ({"causal": True, "kv_layout": "nhd"}, "kv_layout"),
    ],
)
def test_what_is_wrong_is_refused_after_a_right_call_as_before(
    driver: Driver, wrong: dict[str, Any], text: str
) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=text):
            prefill(**wrong)
        prefill()


@pytest.mark.parametrize("which", ["q", "k", "v"])
@pytest.mark.parametrize("how", ["bf16", "meta", "negated", "grad", "strided", "list", "none", "flat"])
def test_tensors_are_compared_each_time(driver: Driver, which: str, how: str) -> None:
    tensors = {"q": half(20, HEADS[0], DIM), "k": half(50, 2, DIM), "v": half(50, 2, DIM)}
    wrong = dict(tensors)
    changes: dict[str, Callable[[torch.Tensor], Any]] = {
        "bf16": torch.Tensor.bfloat16,
        "meta": lambda t: t.to("meta"),
        "negated": torch._neg_view,
        "grad": lambda t: torch.zeros(t.shape, dtype=t.dtype, requires_grad=True),
        "strided": lambda t: torch.zeros(*t.shape[:2], 2 * DIM, dtype=t.dtype)[..., ::2],
        "list": torch.Tensor.tolist,
        "none": lambda _: None,
        "flat": torch.Tensor.flatten,
    }
    with torch.inference_mode(False):
        wrong[which] = changes[how](tensors[which])
    outcomes = []
    for _ in range(2):
        driver.taken()
        try:
            with torch.enable_grad():
                rocade.single_prefill_with_kv_cache(**wrong)
        except ValueError as error:
            outcomes.append((type(error), str(error)))
        else:
            outcomes.append(
                ("launches", str(driver.taken()))
            )  # none: q of another type is for another backend
        for _ in range(2):
            rocade.single_prefill_with_kv_cache(**tensors)
    assert outcomes[0] == outcomes[1]
    assert ("launches", "[]") in outcomes or "launches" not in outcomes[0]


def test_a_mask_is_planned_each_time(driver: Driver, plans: list[AttentionPlan]) -> None:
    mask = torch.ones(20, 100, dtype=torch.bool)
    for _ in range(3):
        prefill(20, 100, custom_mask=mask)
    assert len(plans) == 3


def test_a_scale_in_a_tensor_is_read_each_time(driver: Driver, plans: list[AttentionPlan]) -> None:
    scale = torch.tensor(0.5)
    for _ in range(2):
        prefill(sm_scale=scale, v_scale=scale)
        scale += 1
    assert [plan.request.sm_scale for plan in plans] == [0.5, 1.5]
    found = [hip_abi.AttentionArgs.from_buffer_copy(block).out_scale for _, _, block in driver.taken()[::2]]
    assert found == [0.5, 1.5]


def test_each_stream_has_plans_of_its_own(driver: Driver, plans: list[AttentionPlan]) -> None:
    gpu: Any = driver.emulation.device
    for stream in (1, 1, 2, 2):
        gpu.stream = lambda stream=stream: stream
        prefill()
    assert len(plans) == 2
    assert [numbers[-1] for _, numbers, _ in driver.taken()] == [1, 1, 1, 1, 2, 2, 2, 2]


def test_what_a_graph_captures_uses_no_memory_of_other_calls(
    driver: Driver, plans: list[AttentionPlan]
) -> None:
    gpu: Any = driver.emulation.device
    prefill()
    gpu.is_capturing = lambda: True
    prefill()
    prefill()
    assert len(plans) == 3
    gpu.is_capturing = lambda: False
    prefill()
    assert len(plans) == 3


def test_threads_share_no_plan(driver: Driver, plans: list[AttentionPlan]) -> None:
    def work() -> None:
        with driver.emulation, torch.inference_mode():
            for _ in range(20):
                prefill()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(plans) == 4
    assert len(driver.taken()) == 2 * 4 * 20


def test_few_plans_are_kept_and_the_oldest_goes_first(driver: Driver, plans: list[AttentionPlan]) -> None:
    for keys in range(1, 101):
        decode(keys)
    assert len(_single._local.known) == _single._KEPT
    decode(100)
    assert len(plans) == 100
    decode(1)
    assert len(plans) == 101


def test_calls_outside_of_the_emulation_are_not_its_own(driver: Driver) -> None:
    for _ in range(2):
        decode()
    driver.taken()
    with rocade.emulate("gfx942"):
        out, _ = decode(4)
    assert not driver.taken()
    assert torch.isfinite(out).all()

"""Attention on a real GPU: repeated runs, plans kept by single calls, streams, graphs, threads.

Skipped where torch sees no CUDA or ROCm device, or where backend hip does not serve.
An ordinary run of the same plan is what a repeated one is held to, bit by bit.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import rocade
from rocade import _single
from rocade._wrapper import BatchWrapper
from rocade.backends.hip import _repeats

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")

PAGE, HEADS, DIM = 16, (8, 2), 128
KV = [5000, 17, 900]
INT = {"dtype": torch.int32}
PAGES = sum(-(-n // PAGE) for n in KV)


@pytest.fixture(autouse=True)
def serves(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rocade.explain("batch_decode", device="cuda", backend="hip", q_dtype="float16")
    if found.backend is None:
        pytest.skip(str(found))
    monkeypatch.setattr(_single, "_local", _single._Local())


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of wrappers whose runs went the ordinary way."""
    runs: list[str] = []
    checked = BatchWrapper._checked

    def count(self: BatchWrapper, *given: Any, **options: Any) -> object:
        runs.append(type(self).__name__)
        return checked(self, *given, **options)

    monkeypatch.setattr(BatchWrapper, "_checked", count)
    return runs


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").half()


def table(kv: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    pages = [-(-n // PAGE) for n in kv]
    indptr = torch.tensor([0, *torch.tensor(pages).cumsum(0).tolist()], **INT)
    last = torch.tensor([(n - 1) % PAGE + 1 for n in kv], **INT)
    return indptr, torch.randperm(PAGES)[: sum(pages)].to(torch.int32), last


def wrapper_of(kind: str) -> Any:  # noqa: ANN401  one of three wrappers
    space = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    sizes = (*HEADS, DIM)
    rows = torch.tensor([0, 1, 4, 9], **INT)
    if kind == "decode":
        decode = rocade.BatchDecodeWithPagedKVCacheWrapper(space, backend="hip")
        decode.plan(*table(KV), *sizes, PAGE, q_data_type="float16")
        return decode
    if kind == "paged":
        paged = rocade.BatchPrefillWithPagedKVCacheWrapper(space, backend="hip")
        paged.plan(rows, *table(KV), *sizes, PAGE, causal=True, q_data_type="float16")
        return paged
    ragged = rocade.BatchPrefillWithRaggedKVCacheWrapper(space, backend="hip")
    starts = torch.tensor([0, *torch.tensor(KV).cumsum(0).tolist()], **INT)
    ragged.plan(rows, starts, *sizes, causal=True, q_data_type="float16")
    return ragged


def inputs(kind: str) -> tuple[torch.Tensor, ...]:
    q = half(3 if kind == "decode" else 9, HEADS[0], DIM)
    if kind == "ragged":
        return q, half(sum(KV), HEADS[1], DIM), half(sum(KV), HEADS[1], DIM)
    return q, half(PAGES, 2, PAGE, HEADS[1], DIM)


@pytest.mark.parametrize("kind", ["decode", "paged", "ragged"])
def test_a_repeated_run_gives_the_bits_of_an_ordinary_one(kind: str, ordinary: list[str]) -> None:
    wrapper = wrapper_of(kind)
    wrapper.run(*inputs(kind), return_lse=True)
    given = inputs(kind)
    ordinary.clear()
    repeated = wrapper.run(*given, return_lse=True, v_scale=0.5, q_scale=1.25)
    assert not ordinary
    wrapper._repeatable = None
    expected = wrapper.run(*given, return_lse=True, v_scale=0.5, q_scale=1.25)
    assert ordinary
    assert torch.equal(repeated[0], expected[0])
    assert torch.equal(repeated[1], expected[1])


def test_a_repeated_run_goes_to_the_current_stream(ordinary: list[str]) -> None:
    wrapper = wrapper_of("decode")
    q, cache = inputs("decode")
    expected = wrapper.run(q * 2, cache)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    ordinary.clear()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        found = wrapper.run(q.mul_(2), cache)
    stream.synchronize()
    assert not ordinary
    assert torch.equal(found, expected)


def test_repeated_runs_are_captured_and_follow_new_plans() -> None:
    arrays = table(KV)
    buffers = [torch.empty_like(x, device="cuda") for x in arrays]
    space = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    wrapper = rocade.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(space, *buffers, backend="hip")
    sizes = (*HEADS, DIM, PAGE)
    wrapper.plan(*arrays, *sizes, q_data_type="float16")
    q, cache = inputs("decode")
    out = torch.empty_like(q)
    for _ in range(2):
        wrapper.run(q, cache, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        wrapper.run(q, cache, out=out)
    for kv in (KV, [3, 4000, 1], [1, 1, 1]):
        wrapper.plan(*table(kv), *sizes, q_data_type="float16")
        q.copy_(half(*q.shape))
        graph.replay()
        found = out.clone()
        assert torch.equal(found, wrapper.run(q, cache))


@pytest.mark.parametrize("call", ["prefill", "decode"])
def test_a_captured_single_call_reads_the_list_of_earlier_ones(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = half(40, HEADS[0], DIM) if call == "prefill" else half(HEADS[0], DIM)
    k, v = half(20000, HEADS[1], DIM), half(20000, HEADS[1], DIM)
    lent: list[object] = []
    monkeypatch.setattr(_repeats, "_LENT", lent)

    def run() -> torch.Tensor:
        if call == "prefill":
            return rocade.single_prefill_with_kv_cache(q, k, v, causal=True, backend="hip")
        return rocade.single_decode_with_kv_cache(q, k, v, backend="hip")

    run()
    torch.cuda.synchronize()
    run()  # asks whether the list has arrived
    plan = next(iter(_single._local.known.values())).plan
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [run(), run()]
    assert lent == [plan]
    del plan
    _single._local.known.clear()  # as when other kinds of calls take its place
    for _ in range(3):
        for tensor in (q, k, v):
            tensor.copy_(torch.randn_like(tensor))
        expected = run()
        noise = [
            torch.full((size,), 255, dtype=torch.uint8, device="cuda") for size in (1 << 14, 1 << 18) * 8
        ]
        graph.replay()
        assert all(torch.equal(one, expected) for one in found)
        del noise


def test_a_thread_that_asks_whether_a_list_has_arrived_breaks_no_capture_of_another() -> None:
    q, k, v = half(40, HEADS[0], DIM), half(3000, HEADS[1], DIM), half(3000, HEADS[1], DIM)
    twice = torch.empty_like(q)
    planned, captures, arrived = threading.Event(), threading.Event(), list[bool]()

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            rocade.single_prefill_with_kv_cache(q, k, v, causal=True, backend="hip")
            torch.cuda.current_stream().synchronize()
            planned.set()
            captures.wait(60)  # its memory is cached by now: a capture forbids to allocate, too
            rocade.single_prefill_with_kv_cache(q, k, v, causal=True, backend="hip")
            (known,) = _single._local.known.values()
            arrived.append(known.plan._repeats._has_arrived)  # type: ignore[attr-defined]

    torch.cuda.synchronize()
    thread = threading.Thread(target=work)
    thread.start()
    assert planned.wait(60)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()  # in global mode, which forbids all threads to query events
        torch.mul(q, 2, out=twice)
        captures.set()
        thread.join()
        graph.capture_end()
    graph.replay()
    assert arrived == [True]
    assert torch.equal(twice, q * 2)


@pytest.mark.parametrize("call", ["prefill", "decode"])
def test_single_calls_on_many_streams_and_threads_give_the_same_bits(call: str) -> None:
    q = half(40, HEADS[0], DIM) if call == "prefill" else half(HEADS[0], DIM)
    keys = [(half(n, HEADS[1], DIM), half(n, HEADS[1], DIM)) for n in (20000, 100)]

    def run(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if call == "prefill":
            return rocade.single_prefill_with_kv_cache(q, k, v, causal=True, backend="hip")
        return rocade.single_decode_with_kv_cache(q, k, v, backend="hip")

    expected = [run(*pair) for pair in keys]
    torch.cuda.synchronize()
    wrong: list[int] = []

    def work() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for turn in range(50):
                found = run(*keys[turn % 2])
                stream.synchronize()
                if not torch.equal(found, expected[turn % 2]):
                    wrong.append(turn)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_stream_that_is_busy_gets_a_list_of_its_own() -> None:
    q, k, v = half(40, HEADS[0], DIM), half(3000, HEADS[1], DIM), half(3000, HEADS[1], DIM)
    expected = rocade.single_prefill_with_kv_cache(q, k, v, causal=True, backend="hip")
    torch.cuda.synchronize()
    _single._local.known.clear()
    torch.cuda._sleep(100_000_000)  # the list of the first call arrives late
    late = rocade.single_prefill_with_kv_cache(q, k, v, causal=True, backend="hip")
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        early = rocade.single_prefill_with_kv_cache(q, k, v, causal=True, backend="hip")
        torch.cuda.current_stream().synchronize()
        assert torch.equal(early, expected)
    torch.cuda.synchronize()
    assert torch.equal(late, expected)

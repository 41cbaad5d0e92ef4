"""State functions and append on a real GPU: graph replay, several streams, devices and processes, host cost.

Skipped where torch sees no CUDA or ROCm device, and for a backend that `rocade.explain` says does not serve.
Results are compared with the same call in fp64 on the CPU.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rocade
from rocade.conformance import oracle_states

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")

ROWS, HEADS, DIM = 37, 5, 72
State = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(params=["hip", "torch"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    for op in ("merge_state", "append_paged_kv_cache"):
        found = rocade.explain(op, device="cuda", backend=name)
        if found.backend is None:
            pytest.skip(str(found))
    return name


def state(rows: int = ROWS, device: str = "cuda") -> State:
    v = torch.randn(rows, HEADS, DIM, dtype=torch.float16, device=device)
    return v, torch.randn(rows, HEADS, device=device) * 3


def assert_merged(got: State, a: State, b: State) -> None:
    expected = oracle_states.merge_state(*(x.cpu() for x in (*a, *b)))
    torch.testing.assert_close(got[0].cpu().double(), expected.v, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(got[1].cpu().double(), expected.s, rtol=1e-5, atol=1e-5)


def test_a_captured_graph_reads_what_its_buffers_hold_at_replay(backend: str) -> None:
    a, b, c = state(), state(), state()
    many = torch.randn(ROWS, 3, HEADS, DIM, dtype=torch.float16, device="cuda")
    weights = torch.randn(ROWS, 3, HEADS, device="cuda")
    mask = torch.ones(ROWS, dtype=torch.bool, device="cuda")

    def work() -> tuple[State, State, State]:
        merged = rocade.merge_state(*a, *b, backend=backend)
        kept = tuple(x.clone() for x in merged)
        rocade.merge_state_in_place(*merged, *c, mask, backend=backend)
        return (kept[0], kept[1]), merged, rocade.merge_states(many, weights, backend=backend)

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first, second, third = work()
    for x in (*a, *b, *c, many, weights):
        x.copy_(torch.randn_like(x))
    mask.copy_(torch.arange(ROWS, device="cuda") % 2 == 0)
    graph.replay()
    torch.cuda.synchronize()
    assert_merged(first, a, b)
    on = mask.cpu()
    rows = [(x[mask], y[mask]) for x, y in (second, first, c)]
    assert_merged(rows[0], rows[1], rows[2])
    for after, before in zip(second, first, strict=True):
        assert torch.equal(after.cpu()[~on], before.cpu()[~on])
    expected = oracle_states.merge_states(many.cpu(), weights.cpu())
    torch.testing.assert_close(third[0].cpu().double(), expected.v, rtol=1e-3, atol=1e-3)


def test_work_goes_to_the_current_stream(backend: str) -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    given = [(state(4096), state(4096)) for _ in streams]
    torch.cuda.synchronize()
    results: list[State] = []
    for stream, (a, b) in zip(streams, given, strict=True):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # what follows on another stream would be done long before
            a[0].mul_(2.0)
            results.append(rocade.merge_state(*a, *b, backend=backend))
    torch.cuda.synchronize()
    for got, (a, b) in zip(results, given, strict=True):
        assert_merged(got, a, b)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_tensor_on_another_device_than_the_current_one(backend: str) -> None:
    for index in (1, 0, 1):
        a, b = state(device=f"cuda:{index}"), state(device=f"cuda:{index}")
        assert_merged(rocade.merge_state(*a, *b, backend=backend), a, b)


FORKED = """
import os, sys, torch, rocade
backend = sys.argv[1]
def merge(device):
    v, s = torch.full((8, 4, 64), 2.0, device=device, dtype=torch.float16), torch.zeros(8, 4, device=device)
    merged = rocade.merge_state(v, s, -v, s, backend=backend if device == "cuda" else "auto")
    assert float(merged[0].abs().max()) == 0.0 and float((merged[1] - 1).abs().max()) < 1e-6
merge("cpu")  # the library is in use before the fork; CUDA itself cannot cross one
children = []
for _ in range(2):
    child = os.fork()
    if not child:
        merge("cuda")
        os._exit(0)
    children.append(child)
merge("cuda")
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(codes)
"""


def test_children_of_a_fork_use_the_gpu(backend: str) -> None:
    command = [sys.executable, "-c", FORKED, backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[0, 0]", 0), done.stderr


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_append_writes_every_token_to_its_slot(backend: str, layout: str) -> None:
    pages, size, batch, heads, dim = 24, 16, 3, 4, 64
    lengths, new = [40, 16, 90], [5, 16, 33]
    shape = (pages, 2, size, heads, dim) if layout == "NHD" else (pages, 2, heads, size, dim)
    cache = torch.full(shape, float("nan"), dtype=torch.bfloat16, device="cuda")
    expected = cache.cpu().clone()
    counts = [-(-n // size) for n in lengths]
    table = torch.randperm(pages)[: sum(counts)].to(torch.int32)
    indptr = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)
    last = torch.tensor([(n - 1) % size + 1 for n in lengths], dtype=torch.int32)
    starts = torch.tensor([0, *torch.tensor(new).cumsum(0).tolist()], dtype=torch.int32)
    requests, places = rocade.get_batch_indices_positions(
        starts, torch.tensor(lengths, dtype=torch.int32), sum(new)
    )
    key, value = (torch.randn(sum(new), heads, dim).to(torch.bfloat16) for _ in range(2))
    for i in range(sum(new)):
        page = int(table[int(indptr[requests[i]]) + int(places[i]) // size])
        slot = int(places[i]) % size
        for which, rows in enumerate((key, value)):
            view = expected[page, which] if layout == "NHD" else expected[page, which].transpose(0, 1)
            view[slot] = rows[i]
    device = [x.cuda() for x in (key, value, requests, places)]
    arrays = [x.cuda() for x in (table, indptr, last)]
    rocade.append_paged_kv_cache(*device, cache, *arrays, layout, backend=backend)
    assert batch == len(lengths)
    assert torch.equal(cache.cpu().view(torch.int16), expected.view(torch.int16))


def poison(*_: object, **__: object) -> None:
    raise AssertionError("the call went the ordinary way")


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, every call that goes through dispatch fails."""
    if rocade.explain("merge_state", device="cuda", backend="hip").backend is None:
        pytest.skip("no kernels for this GPU")
    from rocade import _dispatch

    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no DLPack exchange table")
    return lambda: monkeypatch.setattr(_dispatch, "select", poison)


def test_a_layout_once_seen_is_merged_natively(replayed: Callable[[], None]) -> None:
    for _ in range(2):
        a, b, c = state(), state(), state()
        got = rocade.merge_state(*a, *b)
        assert_merged(got, a, b)
        before = (got[0].clone(), got[1].clone())
        rocade.merge_state_in_place(*got, *c)
        assert_merged(got, before, c)
        many = torch.randn(ROWS, 3, HEADS, DIM, dtype=torch.float16, device="cuda")
        weights = torch.randn(ROWS, 3, HEADS, device="cuda")
        merged = rocade.merge_states(many, weights)
        expected = oracle_states.merge_states(many.cpu(), weights.cpu())
        torch.testing.assert_close(merged[0].cpu().double(), expected.v, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(merged[1].cpu().double(), expected.s, rtol=1e-5, atol=1e-5)
        replayed()


def test_other_layouts_and_shared_memory_go_the_ordinary_way(replayed: Callable[[], None]) -> None:
    a, b = state(), state()
    rocade.merge_state(*a, *b)
    rocade.merge_state_in_place(*a, *b)
    replayed()
    rocade.merge_state(*a, *b)
    double = torch.randn(ROWS, 2, HEADS, DIM, dtype=torch.float16, device="cuda")[:, 0]
    for v_a, s_a in ((double, a[1]), (a[0][:7], a[1][:7]), (a[0], a[1].double()), (a[0].bfloat16(), a[1])):
        with pytest.raises((AssertionError, ValueError)):
            rocade.merge_state(v_a, s_a, *b)
    for v_a, s_a in ((a[0], torch._neg_view(a[1])), (torch._neg_view(a[0]), a[1])):
        with pytest.raises((AssertionError, ValueError)):
            rocade.merge_state(v_a, s_a, *b)
    with pytest.raises(ValueError, match="memory of another argument"):
        rocade.merge_state_in_place(*a, a[0], b[1])
    with torch.enable_grad(), pytest.raises(ValueError, match="requires grad"):
        rocade.merge_state(a[0].clone().requires_grad_(), a[1], *b)


def test_variants_of_one_kernel_are_repeated_each_as_it_was(replayed: Callable[[], None]) -> None:
    """Tensors without gaps, and then with one: the second call's own launch is learned, not the first's."""
    for _ in range(2):
        a, b = state(), state()
        assert_merged(rocade.merge_state(*a, *b), a, b)
        wide = torch.randn(ROWS, HEADS + 1, DIM, dtype=torch.float16, device="cuda")[:, :HEADS]
        assert_merged(rocade.merge_state(wide, a[1], *b), (wide, a[1]), b)
        assert_merged(rocade.merge_state(*b, *a), b, a)
        replayed()


def test_appends_of_a_layout_once_seen_are_native(replayed: Callable[[], None]) -> None:
    key, value = (torch.randn(6, 2, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ints = [
        torch.tensor(x, dtype=torch.int32, device="cuda") for x in ([0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2])
    ]
    table = [torch.tensor(x, dtype=torch.int32, device="cuda") for x in ([3, 1], [0, 1, 2], [3, 3])]
    for turn in range(2):
        one = torch.zeros(4, 2, 16, 2, 64, device="cuda", dtype=torch.bfloat16)
        two = (torch.zeros_like(one[:, 0]), torch.zeros_like(one[:, 1]))
        flipped = torch.zeros(4, 2, 2, 16, 64, device="cuda", dtype=torch.bfloat16)
        for cache, layout in ((one, "NHD"), (two, "NHD"), (flipped, "HND")):
            rocade.append_paged_kv_cache(key + turn, value - turn, *ints, cache, *table, layout)
        for cache in ((one[:, 0], one[:, 1]), two, flipped.transpose(2, 3).unbind(1)):
            for pool, tokens in zip(cache, (key + turn, value - turn), strict=True):
                assert torch.equal(pool[3, :3], tokens[0::2])
                assert torch.equal(pool[1, :3], tokens[1::2])
                assert int((pool != 0).any(-1).any(-1).sum()) == 6
        replayed()


class Recorder:
    """Stands for a loaded kernel, keeps what it is launched with and passes it on."""

    def __init__(self, function: Any) -> None:  # noqa: ANN401
        self.function = function
        self.given: list[tuple[object, ...]] = []

    def launch(self, *given: object) -> None:
        self.given.append(given)
        self.function.launch(*given)


def test_a_launch_costs_the_cpu_at_most_five_microseconds() -> None:
    if rocade.explain("merge_state", device="cuda", backend="hip").backend is None:
        pytest.skip("no kernels for this GPU")
    from rocade.backends._gpu import gpu_of
    from rocade.backends.hip._states import PAIR_DENSE

    a, b = state(), state()
    rocade.merge_state(*a, *b, backend="hip")
    launcher = gpu_of(a[0]).kernel(PAIR_DENSE, torch.float16)
    function = launcher._function
    recorder = launcher._function = Recorder(function)
    kept = rocade.cascade.merge_state(*a, *b, out=state(), backend="hip")  # `out`: no native repetition
    launcher._function = function
    (given,) = recorder.given
    warm = time.perf_counter() + 0.3  # s, for the processor to reach its speed
    while time.perf_counter() < warm:
        function.launch(*given)
    spent = []
    for _ in range(30):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            function.launch(*given)
        spent.append((time.perf_counter() - start) / 100)
    torch.cuda.synchronize()
    assert_merged(kept, a, b)
    print(f"a launch costs {sorted(spent)[len(spent) // 2] * 1e6:.2f} us")
    assert sorted(spent)[len(spent) // 2] <= 5e-6

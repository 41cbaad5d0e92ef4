"""The attention kernel on a real NVIDIA GPU: checks, then times.

`python -m tests.kernels.hip.attention.on_device`
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch
from tests.kernels.hip.attention.problem import Launch, Problem, make

from rocade_kernels import hip_abi
from rocade_kernels.build import Instance, code
from rocade_kernels.runtime import Arguments, device

TARGET = "sm_90"


class DeviceLaunch(Launch):
    """A launch on the current CUDA device."""

    def load(self) -> None:
        variant = "decode" if self.decode else ""
        built = code(Instance("attention", TARGET, self.problem.dtype, self.kernel_dim, variant))
        self.function = device("nvidia", 0, TARGET).load(built)
        block, self.kept = self.prepare()
        self.block = Arguments(block)

    def go(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        grid = (self.grid, 1, 1)
        self.function.launch(grid, self.shape.threads, self.shape.lds_bytes, stream, self.block)


def on_gpu(p: Problem) -> Problem:
    masks = [m.cuda() for m in p.masks] if p.masks else None
    return Problem(p.q.cuda(), p.q_lens, p.kv_lens, p.k.cuda(), p.v.cuda(), p.rules, p.dtype, p.pages, masks)


def check(name: str, problem: Problem, decode: bool, **how: Any) -> bool:
    launch = DeviceLaunch(on_gpu(problem), TARGET, decode, **how)
    launch.load()
    launch.go()
    torch.cuda.synchronize()
    first = launch.out.clone()
    launch.go()
    torch.cuda.synchronize()
    same = torch.equal(first.view(torch.int16), launch.out.view(torch.int16)) or bool(launch.split)
    launch.problem = problem
    for tensor in ("out", "lse", "partial_out", "partial_lse"):
        setattr(launch, tensor, getattr(launch, tensor).cpu())
    try:
        launch.check_results()
        fault = "" if same else "two runs differ"
    except AssertionError as error:
        fault = str(error)[:200]
    print("ok  " if not fault else "FAIL", name, "decode" if decode else "prefill", fault, flush=True)
    return not fault


def checks() -> None:
    requests = ([1, 45, 0, 19, 3], [77, 45, 30, 150, 0])
    long = ([200, 3], [700, 333])
    masks = [torch.rand(n, m) < 0.6 for n, m in zip(*requests, strict=True)]
    for decode in (False, True):
        for dim, dtype in itertools.product((64, 128, 256, 80), ("fp16", "bf16")):
            problem = make(*long, heads=(4, 1), dim=dim, dtype=dtype, page_size=16, causal=True)
            check(f"dim {dim} {dtype}", problem, decode)
        check("plain", make(*requests, heads=(2, 2)), decode)
        check("group 7", make(*requests, heads=(7, 1), causal=True), decode)
        check("window", make(*requests, heads=(2, 1), causal=True, window_left=40), decode)
        check("cap", make(*requests, heads=(2, 1), soft_cap=20.0, q_scale=12.0), decode)
        check("page 5 hnd", make(*requests, heads=(4, 2), page_size=5, hnd=True, causal=True), decode)
        check("split", make(*requests, heads=(4, 2), page_size=1, causal=True), decode, split=32)
        check("blocks", make(*requests, heads=(4, 2), page_size=16, causal=True), decode, blocks=2)
        check("mask", make(*requests, heads=(4, 2), masks=masks), decode)


def seconds(launch: DeviceLaunch, calls: int = 20) -> float:
    """Of one call, in a graph of several."""
    launch.go()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            launch.go()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(7):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls / 1e3)
    return sorted(times)[3]


def random_problem(
    q_lens: list[int], kv_lens: list[int], heads: tuple[int, int], page: int, causal: bool, dtype: str
) -> Problem:
    from rocade.conformance import oracle

    kind = torch.float16 if dtype == "fp16" else torch.bfloat16
    q = torch.randn(sum(q_lens), heads[0], 128, device="cuda", dtype=kind)
    rules = oracle.Rules(scale=128**-0.5, causal=causal)
    if not page:
        k, v = (torch.randn(sum(kv_lens), heads[1], 128, device="cuda", dtype=kind) for _ in range(2))
        return Problem(q, q_lens, kv_lens, k, v, rules, dtype)
    counts = [-(-n // page) for n in kv_lens]
    order = torch.randperm(sum(counts)).tolist()
    pages = [order[sum(counts[:b]) : sum(counts[: b + 1])] for b in range(len(counts))]
    k, v = (torch.randn(sum(counts), page, heads[1], 128, device="cuda", dtype=kind) for _ in range(2))
    return Problem(q, q_lens, kv_lens, k, v, rules, dtype, pages)


def heads_of(item: hip_abi.AttentionItem) -> list[hip_abi.AttentionItem]:
    """The same work, one KV head an item."""
    made = []
    for head in range(item.kv_head, item.kv_head + item.kv_heads):
        single = hip_abi.AttentionItem.from_buffer_copy(item)
        single.kv_head, single.kv_heads = head, 1
        made.append(single)
    return made


def timings() -> None:
    for length, causal in itertools.product((1024, 8192), (False, True)):
        problem = random_problem([length], [length], (32, 8), 0, causal, "fp16")
        launch = DeviceLaunch(problem, TARGET)
        launch.work = [single for item in launch.work for single in heads_of(item)]
        launch.work.sort(key=lambda item: -item.q_position)  # long items first
        launch.load()
        flops = 4 * length * length * 32 * 128 / (2 if causal else 1)
        print(f"prefill {length} causal {causal}: {flops / seconds(launch) / 1e12:.0f} TFLOP/s", flush=True)
    rows = ((64, 4096, (32, 8)), (16, 8192, (32, 8)), (128, 2048, (32, 32)), (1, 32768, (32, 8)))
    for batch, length, heads in rows:
        problem = random_problem([1] * batch, [length] * batch, heads, 16, False, "fp16")
        best = (0.0, 0)
        for split in (0, 256, 512, 1024, 2048):
            launch = DeviceLaunch(problem, TARGET, True, split=split)
            launch.load()
            rate = 2 * batch * length * heads[1] * 128 * 2 / seconds(launch) / 1e12
            print(
                f"decode {batch} x {length} {heads} split {split}: {rate:.2f} TB/s, {launch.grid} items",
                flush=True,
            )
            best = max(best, (rate, split))


if __name__ == "__main__":
    began = time.time()
    checks()
    print(f"checks took {time.time() - began:.1f} s")
    timings()

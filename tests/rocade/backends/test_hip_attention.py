"""Attention on our GPU kernels in the emulator: what the planner decides, through the public wrappers.

The conformance grid covers single arguments; here are splits, graphs, workspaces, levels and partial states.
"""

from __future__ import annotations

import pytest
import torch

import rocade
from arch_caps import ArchCapabilityError

TARGETS = ("gfx942", "gfx950")
PAGE = 8
HEADS = (4, 2, 64)
SMALL = (2, 1, 64)
LONG = 2000  # keys of a request that every target splits
WORKSPACE = 64 << 20
INT = {"dtype": torch.int32}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Paged:
    """Requests over a paged cache, whose unused slots are NaN."""

    def __init__(
        self, kv: list[int], qo: list[int], heads: tuple[int, int, int] = HEADS, seed: int = 0
    ) -> None:
        make = torch.Generator().manual_seed(seed)
        self.heads = heads
        pages = [-(-n // PAGE) for n in kv]
        self.indptr = torch.tensor([0, *torch.tensor(pages).cumsum(0).tolist()], **INT)
        self.indices = torch.randperm(sum(pages), generator=make).to(torch.int32)
        self.last = torch.tensor([(n - 1) % PAGE + 1 if n else 0 for n in kv], **INT)
        self.qo = torch.tensor([0, *torch.tensor(qo).cumsum(0).tolist()], **INT)
        shape = (sum(pages) + 1, 2, PAGE, heads[1], heads[2])
        self.cache = torch.full(shape, float("nan"), dtype=torch.float16)
        for i, n in enumerate(kv):
            for j in range(n):
                page = int(self.indices[int(self.indptr[i]) + j // PAGE])
                self.cache[page, :, j % PAGE] = torch.randn(2, *heads[1:], generator=make).half()
        self.q = torch.randn(sum(qo), heads[0], heads[2], generator=make).half()

    def prefill(self, backend: str, workspace: int = WORKSPACE) -> rocade.BatchPrefillWithPagedKVCacheWrapper:
        return rocade.BatchPrefillWithPagedKVCacheWrapper(
            torch.empty(workspace, dtype=torch.uint8), backend=backend
        )

    def plan(self, wrapper: rocade.BatchPrefillWithPagedKVCacheWrapper, **options: object) -> None:
        options = {"causal": True, "q_data_type": "float16", **options}
        wrapper.plan(self.qo, self.indptr, self.indices, self.last, *self.heads, PAGE, **options)

    def run(self, backend: str, state: object = None, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
        wrapper = self.prefill(backend)
        self.plan(wrapper, **options)
        out, lse = wrapper.run(self.q, self.cache, return_lse=True, partial_state=state)
        return out, lse


def launches(emulation: object) -> list[str]:
    return [result.program.split("-")[0] for result in emulation.results]  # type: ignore[attr-defined]


def close(found: tuple[torch.Tensor, torch.Tensor], wanted: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.testing.assert_close(found[0], wanted[0], atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(found[1], wanted[1], atol=2e-5, rtol=2e-5)


def test_a_long_request_is_split_and_merged(target: str) -> None:
    work = Paged([LONG, 0, 5], [1, 1, 1], SMALL)
    with rocade.emulate(target) as emulation:
        found = work.run("hip")
        again = work.run("hip")
    assert launches(emulation) == ["attention", "merge_partials"] * 2
    close(found, work.run("torch"))
    assert torch.equal(found[0], again[0])
    assert torch.equal(found[1], again[1])
    assert (found[0][1] == 0).all()
    assert (found[1][1] == -torch.inf).all()


def test_a_short_request_is_one_launch(target: str) -> None:
    work = Paged([60, 20], [1, 3])
    with rocade.emulate(target) as emulation:
        found = work.run("hip")
    assert launches(emulation) == ["attention"]
    close(found, work.run("torch"))


@pytest.mark.parametrize("options", [{}, {"fixed_split_size": 8}, {"disable_split_kv": True}])
def test_a_partial_state_is_one_more_range_of_keys(target: str, options: dict[str, object]) -> None:
    work = Paged([300 if options else LONG, 0, 9], [2, 1, 3], SMALL)
    state = (torch.randn_like(work.q), torch.randn(work.q.shape[:2]) * 3)
    state[1][0, 0] = -torch.inf
    state[0][0, 0] = torch.nan
    with rocade.emulate(target) as emulation:
        found = work.run("hip", state, **options)
    assert ("merge_partials" in launches(emulation)) == ("disable_split_kv" not in options)
    close(found, work.run("torch", state, **options))


@pytest.mark.parametrize("options", [{"fixed_split_size": 8}, {"disable_split_kv": True}])
def test_fixed_splits_give_the_same_bits_in_any_batch(target: str, options: dict[str, object]) -> None:
    together = Paged([40, 150, 3], [2, 1, 3])
    alone = Paged([150], [1])
    alone.q = together.q[2:3]
    first = int(together.indptr[1])
    for j in range(150):
        page = int(together.indices[first + j // PAGE])
        alone.cache[int(alone.indices[j // PAGE]), :, j % PAGE] = together.cache[page, :, j % PAGE]
    with rocade.emulate(target):
        a, b = together.run("hip", **options), alone.run("hip", **options)
    assert torch.equal(a[0][2:3], b[0])
    assert torch.equal(a[1][2:3], b[1])


def test_fixed_splits_give_the_same_bits_in_a_batch_of_many_merges(target: str) -> None:
    """A merge of few items is shared out unlike one that fills the GPU; the order of sums is one."""
    alone, count = Paged([24], [1], (33, 1, 256)), 38
    together = Paged([24] * count, [1] * count, alone.heads)
    together.cache, together.q = alone.cache, alone.q.repeat(count, 1, 1)
    together.indices = alone.indices.repeat(count)
    with rocade.emulate(target):
        a, b = (work.run("hip", fixed_split_size=2) for work in (alone, together))
    assert torch.equal(b[0], a[0].expand_as(b[0]))
    assert torch.equal(b[1], a[1].expand_as(b[1]))


def test_many_rows_and_few_rows_in_one_batch(target: str) -> None:
    work = Paged([90, 200, 1], [70, 1, 1])
    with rocade.emulate(target):
        close(work.run("hip"), work.run("torch"))


@pytest.mark.parametrize("heads", [(5, 1, 64), (20, 1, 64), (6, 6, 72)])
def test_any_group(target: str, heads: tuple[int, int, int]) -> None:
    work = Paged([130, 3], [2, 1], heads)
    with rocade.emulate(target):
        close(work.run("hip"), work.run("torch"))


@pytest.mark.parametrize("part", [1.0, 0.6, 0.1, 0.0])
def test_workspace_size_is_exact_and_with_less_there_are_fewer_pieces(target: str, part: float) -> None:
    work = Paged([LONG], [1], SMALL)
    arguments = (work.qo, work.indptr, work.indices, work.last, *work.heads, PAGE)
    with rocade.emulate(target) as emulation:
        need, _ = work.prefill("hip").workspace_size(*arguments, causal=True)
        assert need > 0
        given = int(part * need) // 16 * 16
        wrapper = work.prefill("hip", given)
        work.plan(wrapper)
        used = wrapper._current().workspace_bytes
        assert (used == need) if part == 1.0 else used <= given
        assert wrapper.workspace_size(*arguments, causal=True)[0] == need
        found = wrapper.run(work.q, work.cache, return_lse=True)
    assert len(launches(emulation)) == (2 if used else 1)
    assert used > 0 or part < 0.5
    close(found, work.run("torch"))


def test_too_little_workspace_for_the_splits_that_were_asked_for_is_refused(target: str) -> None:
    work = Paged([LONG], [1], SMALL)
    arguments = (work.qo, work.indptr, work.indices, work.last, *work.heads, PAGE)
    with rocade.emulate(target):
        need, _ = work.prefill("hip").workspace_size(*arguments, causal=True, fixed_split_size=16)
        work.plan(work.prefill("hip", need), fixed_split_size=16)
        short = work.prefill("hip", need - 16)
        with pytest.raises(ValueError, match=rf"float_workspace_buffer.*at least {need} bytes"):
            work.plan(short, fixed_split_size=16)
        with pytest.raises(RuntimeError, match="plan"):
            short.run(work.q, work.cache)


class Graph:
    """A wrapper in graph mode with room for `batch` requests of `pages` pages."""

    def __init__(self, batch: int, pages: int) -> None:
        self.buffers = (torch.zeros(batch + 1, **INT), torch.zeros(pages, **INT), torch.zeros(batch, **INT))
        self.wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(WORKSPACE, dtype=torch.uint8),
            use_cuda_graph=True,
            paged_kv_indptr_buffer=self.buffers[0],
            paged_kv_indices_buffer=self.buffers[1],
            paged_kv_last_page_len_buffer=self.buffers[2],
            backend="hip",
        )


def test_a_graph_replans_into_the_same_memory(target: str) -> None:
    """What a captured graph would launch again: the same grids and addresses, for other lengths."""
    lengths = [[LONG, 5, 0], [3, 3, 3], [0, 0, 0], [20, 400, 90]]
    graph = Graph(3, 300)
    seen = []
    with rocade.emulate(target) as emulation:
        for kv in lengths:
            work = Paged(kv, [1, 1, 1], SMALL)
            graph.wrapper.plan(work.indptr, work.indices, work.last, *work.heads, PAGE, q_data_type="float16")
            before = len(emulation.results)
            found = graph.wrapper.run(work.q, work.cache, return_lse=True)
            ran = emulation.results[before:]
            seen.append([(r.program, r.shape.grid) for r in ran])
            free = rocade.BatchDecodeWithPagedKVCacheWrapper(torch.empty(WORKSPACE, dtype=torch.uint8))
            free.plan(work.indptr, work.indices, work.last, *work.heads, PAGE, q_data_type="float16")
            wanted = free.run(work.q, work.cache, return_lse=True)
            assert torch.equal(found[0], wanted[0])
            assert torch.equal(found[1], wanted[1])
            close(found, work.run("torch", causal=False))
    assert all(launch == seen[0] for launch in seen)
    assert [name.split("-")[0] for name, _ in seen[0]] == ["attention", "merge_partials"]


@pytest.mark.parametrize("options", [{}, {"fixed_split_size": 8}])
def test_a_prefill_graph_launches_the_same_whatever_the_longest_request(
    target: str, options: dict[str, object]
) -> None:
    room = [torch.zeros(n, **INT) for n in (3, 3, 40, 2)]
    names = ("qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf", "paged_kv_last_page_len_buf")
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(WORKSPACE, dtype=torch.uint8),
        use_cuda_graph=True,
        backend="hip",
        **dict(zip(names, room, strict=True)),
    )
    seen = []
    with rocade.emulate(target) as emulation:
        for rows, keys in (([20, 10], [90, 40]), ([1, 1], [9, 130]), ([0, 0], [0, 3]), ([29, 1], [30, 1])):
            work = Paged(keys, rows, SMALL)
            work.plan(wrapper, **options)
            before = len(emulation.results)
            found = wrapper.run(work.q, work.cache, return_lse=True)
            seen.append([(r.program, r.shape.grid) for r in emulation.results[before:]])
            close(found, work.run("torch"))
    assert all(launch == seen[0] for launch in seen)


def cascade(backend: str, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Three levels: 100 keys for all, 30 and 0 for two halves, and some of each request's own."""
    work = Paged([100, 30, 0, 9, 1, 0, 25], [0] * 7, seed=3)
    pages = [work.indices[int(a) : int(b)] for a, b in zip(work.indptr, work.indptr[1:], strict=False)]
    q = torch.randn(8, *HEADS[::2], generator=torch.Generator().manual_seed(5)).half()
    rows = [[0, 8], [0, 3, 8], [0, 1, 3, 7, 8]]
    kept = [pages[:1], pages[1:3], pages[3:]]
    last = [work.last[:1], work.last[1:3], work.last[3:]]
    wrapper = rocade.MultiLevelCascadeAttentionWrapper(
        3, torch.empty(WORKSPACE, dtype=torch.uint8), backend=backend
    )
    wrapper.plan(
        [torch.tensor(r, **INT) for r in rows],
        [
            torch.tensor([0, *torch.tensor([len(p) for p in level]).cumsum(0).tolist()], **INT)
            for level in kept
        ],
        [torch.cat(level) for level in kept],
        last,
        *HEADS,
        PAGE,
        q_data_type="float16",
        **options,
    )
    return wrapper.run(q, work.cache, return_lse=True)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window_left": 20}])
def test_levels_are_one_launch_and_one_merge(target: str, options: dict[str, object]) -> None:
    with rocade.emulate(target) as emulation:
        found = cascade("hip", **options)
    assert launches(emulation)[-1] == "merge_partials"
    assert launches(emulation)[:-1] in (["attention"], ["attention", "attention"])  # few rows, many rows
    close(found, cascade("torch", **options))


@pytest.mark.parametrize("options", [{}, {"causal": True, "window_left": 20}])
@pytest.mark.parametrize("fused", ["0", "1"])
def test_levels_one_after_the_other(
    target: str, fused: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHINFER_HIP_FUSED_CASCADE", fused)
    with rocade.emulate(target) as emulation:
        found = cascade("hip", **options)
    assert launches(emulation).count("merge_state") == (0 if fused == "1" else 2)
    torch.testing.assert_close(found[0], cascade("torch", **options)[0], atol=4e-3, rtol=4e-3)
    torch.testing.assert_close(found[1], cascade("torch", **options)[1], atol=5e-5, rtol=5e-5)


def test_the_setting_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHINFER_HIP_FUSED_CASCADE", "yes")
    with rocade.emulate("gfx942"), pytest.raises(ValueError, match="FLASHINFER_HIP_FUSED_CASCADE"):
        cascade("hip")


def test_a_shared_dense_prefix_and_pages(target: str) -> None:
    work = Paged([9, 0, 30], [1, 1, 1])
    make = torch.Generator().manual_seed(1)
    shared = [torch.randn(50, *HEADS[1:], generator=make).half() for _ in range(2)]
    results = []
    for backend in ("hip", "torch"):
        with rocade.emulate(target) if backend == "hip" else torch.no_grad():
            wrapper = rocade.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(
                torch.empty(WORKSPACE, dtype=torch.uint8), backend=backend
            )
            wrapper.begin_forward(work.indptr, work.indices, work.last, *HEADS, PAGE)
            results.append(wrapper.forward(work.q, *shared, work.cache))
    torch.testing.assert_close(*results, atol=2e-3, rtol=2e-3)


def test_single_decode_has_its_lse_when_split(target: str) -> None:
    make = torch.Generator().manual_seed(2)
    q = torch.randn(2, 64, generator=make).bfloat16()
    k, v = (torch.randn(LONG, 1, 64, generator=make).bfloat16() for _ in range(2))
    with rocade.emulate(target) as emulation:
        out, lse = rocade.single_decode_with_kv_cache(q, k, v, return_lse=True)
    assert launches(emulation) == ["attention", "merge_partials"]
    wanted, wanted_lse = rocade.single_decode_with_kv_cache(q, k, v, return_lse=True)
    torch.testing.assert_close(out, wanted, atol=2e-2, rtol=1e-2)
    torch.testing.assert_close(lse, wanted_lse, atol=1e-4, rtol=1e-4)


def test_tensors_that_are_not_aligned(target: str) -> None:
    work = Paged([40], [2])
    odd = torch.empty(work.q.numel() + 4, dtype=torch.float16)[4:].view_as(work.q).copy_(work.q)
    cache = torch.empty(work.cache.numel() + 4, dtype=torch.float16)[4:].view_as(work.cache).copy_(work.cache)
    out = torch.empty(work.q.numel() + 4, dtype=torch.float16)[4:].view_as(work.q)
    wanted = work.run("torch")
    with rocade.emulate(target):
        wrapper = work.prefill("hip")
        work.plan(wrapper)
        found, lse = wrapper.run(odd, cache, out=out, return_lse=True)
    assert found is out
    close((out, lse), wanted)


def test_what_the_kernels_do_not_do_is_refused_with_reasons(target: str) -> None:
    work = Paged([40], [2])
    with rocade.emulate(target), pytest.raises(ArchCapabilityError, match="ALIBI"):
        work.plan(work.prefill("hip"), pos_encoding_mode="ALIBI")


def test_page_sizes_that_cannot_be_divided_by_are_refused() -> None:
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(
        torch.empty(WORKSPACE, dtype=torch.uint8), backend="hip"
    )
    size = 65537 * 3
    indptr = torch.tensor([0, 2], **INT)
    with rocade.emulate("gfx942"), pytest.raises(ValueError, match=r"page_size.*power of two"):
        wrapper.plan(
            indptr, torch.tensor([0, 1], **INT), torch.tensor([1], **INT), *HEADS, size, q_data_type="float16"
        )

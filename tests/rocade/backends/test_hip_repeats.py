"""Runs that a plan repeats natively: the same launches as the ordinary way makes, or the ordinary way itself.

The GPU is an idle one, whose launch call keeps what it is given.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.rocade.backends.idle_driver import STRUCTS, Driver
from tests.rocade.backends.run_changes import CHANGES

import rocade
from rocade._wrapper import BatchWrapper
from rocade.backends.hip import _dlpack, _repeats
from rocade_kernels import hip_abi

pytestmark = pytest.mark.skipif(not _dlpack.read_address(), reason="this torch has no DLPack exchange table")

PAGE, HEADS, DIM = 16, (4, 2), 64
SIZES = (*HEADS, DIM)
KV = [3000, 17, 400]  # keys: the first is split
INT = {"dtype": torch.int32}


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    with made.emulation, torch.inference_mode():
        yield made


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of wrappers whose runs went the ordinary way."""
    runs: list[str] = []
    checked = BatchWrapper._checked

    def count(self: BatchWrapper, *given: Any, **options: Any) -> object:
        runs.append(type(self).__name__)
        return checked(self, *given, **options)

    monkeypatch.setattr(BatchWrapper, "_checked", count)
    return runs


def workspace() -> torch.Tensor:
    return torch.empty(64 << 20, dtype=torch.uint8)


def table() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    pages = [-(-n // PAGE) for n in KV]
    indptr = torch.tensor([0, *torch.tensor(pages).cumsum(0).tolist()], **INT)
    return (
        indptr,
        torch.randperm(sum(pages)).to(torch.int32),
        torch.tensor([(n - 1) % PAGE + 1 for n in KV], **INT),
    )


PAGES = sum(-(-n // PAGE) for n in KV)
ROWS = torch.tensor([0, 1, 2, 4], **INT)
POOL = {"NHD": (PAGES, 2, PAGE, HEADS[1], DIM), "HND": (PAGES, 2, HEADS[1], PAGE, DIM)}


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).half()


def paged(layout: str = "NHD", **options: Any) -> BatchWrapper:
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace(), layout)
    wrapper.plan(ROWS, *table(), *SIZES, PAGE, causal=True, q_data_type="float16", **options)
    return wrapper


def decode() -> BatchWrapper:
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(*table(), *SIZES, PAGE, q_data_type="float16")
    return wrapper


def decode_graph() -> BatchWrapper:
    arrays = table()
    buffers = [torch.empty_like(x) for x in arrays]
    wrapper = rocade.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(workspace(), *buffers)
    wrapper.plan(*arrays, *SIZES, PAGE, q_data_type="float16")
    return wrapper


def ragged(layout: str = "NHD") -> BatchWrapper:
    wrapper = rocade.BatchPrefillWithRaggedKVCacheWrapper(workspace(), layout)
    starts = torch.tensor([0, *torch.tensor(KV).cumsum(0).tolist()], **INT)
    wrapper.plan(ROWS, starts, *SIZES, causal=True, q_data_type="float16")
    return wrapper


def cascade() -> BatchWrapper:
    indptr, indices, last = table()
    wrapper = rocade.MultiLevelCascadeAttentionWrapper(2, workspace())
    shared = (
        torch.tensor([0, 4], **INT),
        torch.tensor([0, 2], **INT),
        indices[:2],
        torch.tensor([PAGE], **INT),
    )
    levels = zip(shared, (ROWS, indptr, indices, last), strict=True)
    wrapper.plan(*[list(pair) for pair in levels], *SIZES, PAGE, q_data_type="float16")
    return wrapper


def pool(layout: str = "NHD") -> tuple[torch.Tensor]:
    return (half(*POOL[layout]),)


def pair() -> tuple[tuple[torch.Tensor, torch.Tensor]]:
    shape = POOL["NHD"]
    return ((half(shape[0], *shape[2:]), half(shape[0], *shape[2:])),)


def dense(layout: str = "NHD") -> tuple[torch.Tensor, torch.Tensor]:
    shape = (sum(KV), HEADS[1], DIM) if layout == "NHD" else (HEADS[1], sum(KV), DIM)
    return half(*shape), half(*shape)


# Wrapper, what makes its caches, its rows.
CASES: dict[str, tuple[Callable[[], BatchWrapper], Callable[[], tuple[Any, ...]], int]] = {
    "paged": (paged, pool, 4),
    "paged, two tensors": (paged, pair, 4),
    "paged, heads first": (lambda: paged("HND"), lambda: pool("HND"), 4),
    "paged, not split": (lambda: paged(disable_split_kv=True), pool, 4),
    "paged, fixed splits": (lambda: paged(fixed_split_size=8), pool, 4),
    "paged, window and cap": (lambda: paged(window_left=100, logits_soft_cap=30.0), pool, 4),
    "decode": (decode, pool, 3),
    "decode, graph": (decode_graph, pool, 3),
    "ragged": (ragged, dense, 4),
    "ragged, heads first": (lambda: ragged("HND"), lambda: dense("HND"), 4),
    "cascade": (cascade, pool, 4),
}


class Work:
    """A planned wrapper, and tensors for its runs."""

    def __init__(self, case: str) -> None:
        make, self.caches, self.rows = CASES[case]
        self.wrapper: Any = make()

    def inputs(self) -> tuple[Any, ...]:
        return half(self.rows, HEADS[0], DIM), *self.caches()

    def results(self, *, lse: bool, state: bool) -> dict[str, Any]:
        shape = (self.rows, HEADS[0])
        made: dict[str, Any] = {"out": half(*shape, DIM)}
        if lse:
            made |= {"lse": torch.empty(shape), "return_lse": True}
        if state:
            made["partial_state"] = (half(*shape, DIM), torch.randn(shape))
        return made


EXTRAS = ("", "lse", "state", "lse state")
TAKES_NO_STATE = ("decode", "ragged")


@pytest.mark.parametrize(
    ("case", "extra"),
    [(c, e) for c in CASES for e in EXTRAS if "state" not in e or not c.startswith(TAKES_NO_STATE)],
)
def test_a_repeated_run_launches_what_an_ordinary_one_does(
    driver: Driver, ordinary: list[str], case: str, extra: str
) -> None:
    work = Work(case)
    kinds = {"lse": "lse" in extra, "state": "state" in extra}
    work.wrapper.run(*work.inputs(), **work.results(**kinds))
    launched = [name.split("-")[0] for name, *_ in driver.taken()]
    whole = case in ("paged, not split", "paged, window and cap")
    assert launched == ["attention", "merge_partials"][: 1 if whole else 2]
    inputs, results = work.inputs(), work.results(**kinds)
    ordinary.clear()
    work.wrapper.run(*inputs, q_scale=0.3, k_scale=2.5, v_scale=0.7, **results)
    assert not ordinary
    repeated = driver.taken()
    work.wrapper._repeatable = None
    work.wrapper.run(*inputs, q_scale=0.3, k_scale=2.5, v_scale=0.7, **results)
    assert ordinary
    assert repeated == driver.taken()


def test_results_that_are_not_given_are_made_as_the_ordinary_way_does(
    driver: Driver, ordinary: list[str]
) -> None:
    work = Work("paged")
    first = work.wrapper.run(*work.inputs(), return_lse=True)
    ordinary.clear()
    again = work.wrapper.run(*work.inputs(), return_lse=True)
    assert not ordinary
    for a, b in zip(first, again, strict=True):
        assert (a.shape, a.dtype, a.device, a.stride()) == (b.shape, b.dtype, b.device, b.stride())
    assert isinstance(work.wrapper.run(*work.inputs()), torch.Tensor)
    assert ordinary  # without an lse it is another call


def outcome(driver: Driver, run: Callable[[], object]) -> Any:  # noqa: ANN401  a list or a pair
    """The launches of a run, or what it raises."""
    driver.taken()
    try:
        run()
    except Exception as error:
        return type(error), str(error)
    return driver.taken()


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_has_the_same_outcome_as_without_an_earlier_run(
    driver: Driver, ordinary: list[str], change: str
) -> None:
    work = Work("paged")
    q, cache = work.inputs()
    results = work.results(lse=True, state=False)
    for _ in range(2):
        work.wrapper.run(q, cache, **results)
    assert work.wrapper._repeatable is not None
    with torch.inference_mode(False):
        q2, cache2, results2 = CHANGES[change](q, cache, results)

    def run() -> object:
        return work.wrapper.run(q2, cache2, **results2)

    with torch.enable_grad():
        after = outcome(driver, run)
        work.wrapper._repeatable = None
        first = outcome(driver, run)
    if "not at a multiple" in change:  # copies, each time in other memory
        assert len(ordinary) == 3
        after, first = ([launch[:2] for launch in launches] for launches in (after, first))
    assert after == first
    assert first


def test_a_state_that_a_result_overwrites_is_copied_each_time(driver: Driver, ordinary: list[str]) -> None:
    work = Work("paged")
    inputs, results = work.inputs(), work.results(lse=True, state=True)
    work.wrapper.run(*inputs, **results)
    ordinary.clear()
    out, lse = results["out"], results["lse"]
    work.wrapper.run(*inputs, out=out, lse=lse, return_lse=True, partial_state=(out, lse))
    assert ordinary
    block = hip_abi.MergePartialsArgs.from_buffer_copy(driver.taken()[-1][2])
    assert out.data_ptr() == block.out != block.state_out


def test_planning_again_and_other_flags_repeat_nothing_of_before(driver: Driver, ordinary: list[str]) -> None:
    work = Work("paged")
    inputs = work.inputs()
    results = work.results(lse=False, state=False)
    for _ in range(2):
        work.wrapper.run(*inputs, **results)
    ordinary.clear()
    work.wrapper.forward(*inputs, causal=False)
    work.wrapper.run(*inputs, **results)
    work.wrapper.reset_workspace_buffer(workspace())
    work.wrapper.run(*inputs, **results)
    assert len(ordinary) == 2
    partial = hip_abi.AttentionArgs.from_buffer_copy(driver.taken()[-2][2]).partial_out
    assert partial == work.wrapper._float_workspace_buffer.data_ptr()


def test_rows_beyond_the_plan_are_filled_every_time(driver: Driver, ordinary: list[str]) -> None:
    work = Work("decode, graph")
    q, cache = work.inputs()
    padded = torch.cat([q, q])
    for _ in range(3):
        out, lse = work.wrapper.run(padded, cache, return_lse=True)
        assert (out[3:] == 0).all()
        assert (lse[3:] == -torch.inf).all()
    assert len(ordinary) == 3


def test_another_device_being_current_is_left_to_the_ordinary_way(
    driver: Driver, ordinary: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work("paged")
    inputs, results = work.inputs(), work.results(lse=False, state=False)
    work.wrapper.run(*inputs, **results)
    ordinary.clear()
    gpu = driver.emulation.device
    monkeypatch.setattr(gpu, "is_current", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.inference_mode())
    work.wrapper.run(*inputs, **results)
    assert ordinary


def test_the_stream_is_the_current_one(driver: Driver, ordinary: list[str]) -> None:
    work = Work("paged")
    inputs, results = work.inputs(), work.results(lse=False, state=False)
    work.wrapper.run(*inputs, **results)
    driver.taken()
    ordinary.clear()
    driver.emulation.device.stream = lambda: 0xABC  # type: ignore[attr-defined]
    work.wrapper.run(*inputs, **results)
    assert not ordinary
    assert [numbers[-1] for _, numbers, _ in driver.taken()] == [0xABC, 0xABC]


def test_a_launch_that_fails_is_told_by_the_ordinary_way(driver: Driver) -> None:
    work = Work("paged")
    inputs, results = work.inputs(), work.results(lse=False, state=False)
    work.wrapper.run(*inputs, **results)
    driver.code = 700
    with pytest.raises(RuntimeError, match=r"attention-fp16-d64.*700"):
        work.wrapper.run(*inputs, **results)


def test_many_layouts_are_served_however_few_are_kept(driver: Driver) -> None:
    work = Work("paged")
    q, _ = work.inputs()
    results = work.results(lse=False, state=False)
    for more in range(40):
        cache = half(PAGES + more, *POOL["NHD"][1:])
        for _ in range(2):
            work.wrapper.run(q, cache, **results)
        a, b = driver.taken()[::2], driver.taken()[1::2]
        assert [hip_abi.AttentionArgs.from_buffer_copy(block).num_pages for _, _, block in a] == [
            PAGES + more
        ] * 2
        assert b == []


def test_a_child_of_a_fork_repeats_nothing(driver: Driver) -> None:
    work = Work("paged")
    inputs, results = work.inputs(), work.results(lse=False, state=False)
    work.wrapper.run(*inputs, **results)
    scales = (1.0, 1.0)
    tensors = (*inputs, results["out"])
    repeats = work.wrapper._plan._repeats
    assert repeats.run(tensors, *scales)
    child = os.fork()
    if not child:
        os._exit(1 if repeats.run(tensors, *scales) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_emulator_is_asked_every_time(ordinary: list[str]) -> None:
    with rocade.emulate("gfx942"), torch.inference_mode():
        wrapper: Any = paged()
        q, cache = half(4, HEADS[0], DIM), torch.zeros(POOL["NHD"]).half()
        results = [wrapper.run(q, cache) for _ in range(2)]
    assert len(ordinary) == 2
    assert torch.equal(*results)


@pytest.mark.parametrize("struct", STRUCTS.values())
def test_it_is_known_of_every_argument_what_decides_it(struct: type[ctypes.Structure]) -> None:
    """A new one belongs into one of these sets; until then no run is repeated."""
    kinds = (_repeats.ADDRESSES, _repeats.NUMBERS, _repeats.LAID_OUT, _repeats.PLANNED)
    for field in struct._fields_:
        assert sum(field[0] in kind for kind in kinds) == 1, field[0]
    numbers = {name for name, kind, *_ in struct._fields_ if kind is ctypes.c_float}
    assert numbers <= _repeats.NUMBERS | {"soft_cap"}


def test_a_block_with_an_argument_that_is_not_known_is_not_repeated(
    driver: Driver, ordinary: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_repeats, "_KNOWN", _repeats._KNOWN - {"soft_cap"})
    _repeats._layout.cache_clear()
    work = Work("paged")
    inputs, results = work.inputs(), work.results(lse=False, state=False)
    for _ in range(2):
        work.wrapper.run(*inputs, **results)
    assert len(ordinary) == 2
    _repeats._layout.cache_clear()


def test_without_an_exchange_table_every_run_goes_the_ordinary_way(
    driver: Driver, ordinary: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_repeats, "read_address", lambda: 0)
    work = Work("paged")
    inputs, results = work.inputs(), work.results(lse=False, state=False)
    for _ in range(3):
        work.wrapper.run(*inputs, **results)
    assert len(ordinary) == 3
    assert len(set(driver.taken()[::2])) == 1

"""The cpu backend as such: its workspace, its absence, odd strides. Results are the conformance grid's."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import pytest
import torch

from arch_caps import DType, Op, Request
from rocade import _device
from rocade._plan import KV, RunArgs, State
from rocade._problem import Level, PageTable, Problem
from rocade.backends.cpu import BACKEND, _plan
from rocade.conformance import grid, runner
from rocade_kernels import _native
from rocade_kernels._cache import BuildError
from rocade_kernels.cpu_plans import ALWAYS_SHARE, PlanArgs

pytestmark = pytest.mark.skipif(
    _native.library_or_none() is None, reason="no native library, and no compiler to build it"
)


def request(**facts: object) -> Request:
    plain: dict[str, object] = {
        "op": Op.BATCH_DECODE,
        "q_dtype": DType.FP32,
        "kv_dtype": DType.FP32,
        "o_dtype": DType.FP32,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "head_dim_qk": 32,
        "head_dim_vo": 32,
        "page_size": 16,
        "sm_scale": 0.2,
    }
    return Request(**{**plain, **facts})  # type: ignore[arg-type]


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def decode(kv_len: int, workspace: torch.Tensor | None = None) -> tuple[Problem, RunArgs]:
    """One request of one row over `kv_len` keys in shuffled pages."""
    pages = -(-kv_len // 16)
    table = PageTable(
        int32(0, pages), torch.randperm(pages).int(), int32((kv_len - 1) % 16 + 1), 16, pages - 1
    )
    problem = Problem(
        (Level(int32(0, 1), int32(kv_len), table),), 1, torch.device("cpu"), workspace=workspace
    )
    kv = KV(torch.randn(pages, 16, 2, 32), torch.randn(pages, 16, 2, 32))
    q = torch.randn(1, 4, 32)
    return problem, RunArgs(q, (kv,), torch.full_like(q, math.nan), torch.full((1, 4), math.nan), 0.2)


def plain(problem: Problem, args: RunArgs) -> torch.Tensor:
    pages = problem.levels[0].pages
    assert pages is not None
    n = int(problem.levels[0].kv_len)
    k, v = (x[pages.indices.long()].flatten(0, 1)[:n].repeat_interleave(2, 1).double() for x in args.kv[0])
    weights = (torch.einsum("thd,nhd->htn", args.q.double(), k) * args.sm_scale).softmax(-1)
    return torch.einsum("htn,nhd->thd", weights, v).float()


@pytest.fixture
def four_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("given", ["none", "short", "exact", "odd address"])
def test_workspace(given: str) -> None:
    torch.manual_seed(0)
    problem, args = decode(5000)
    plan = BACKEND.plan(request(), problem)
    need = plan.workspace_bytes
    assert need > 0  # the range is split over the threads
    memory = torch.full((need + 8,), 255, dtype=torch.uint8)
    workspace = {
        "none": None,
        "short": memory[: need - 1],
        "exact": memory[:need],
        "odd address": memory[1 : need + 1],
    }
    problem = Problem(problem.levels, 1, problem.device, workspace=workspace[given])
    BACKEND.plan(request(), problem).run(args)
    torch.testing.assert_close(args.out, plain(problem, args), rtol=1e-5, atol=1e-6)
    assert bool((memory[:need] != 255).any()) == (given == "exact")  # used when it can be
    assert (memory[need:] == 255).all()


@pytest.mark.usefixtures("four_threads")
def test_same_bits_whatever_the_workspace_holds() -> None:
    problem, args = decode(5000)
    plan = BACKEND.plan(request(), problem)
    plan.run(args)
    first = args.out.clone()
    problem = Problem(
        problem.levels, 1, problem.device, workspace=torch.full((plan.workspace_bytes,), 255).byte()
    )
    BACKEND.plan(request(), problem).run(args)
    assert torch.equal(first, args.out)


@pytest.mark.parametrize("threads", [1, 3])
def test_cascade_is_right_whatever_is_shared(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _plan._plan_args

    def forced(request: Request, problem: Problem) -> PlanArgs:
        return made(request, problem)._replace(share=ALWAYS_SHARE, threads=threads)

    monkeypatch.setattr(_plan, "_plan_args", forced)
    reports = [runner.run(case, "cpu") for case in grid.cases(Op.CASCADE)[threads::3]]
    assert [str(report) for report in reports if report.outcome is runner.Outcome.FAILED] == []
    assert sum(report.outcome is runner.Outcome.PASSED for report in reports) > len(reports) // 2


def test_absent_without_library_or_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKEND.absent(_device.place(torch.device("cpu"))) == []

    def missing() -> None:
        raise BuildError("no compiler was found")

    monkeypatch.setattr(_native, "library", missing)
    (reason,) = BACKEND.absent(_device.place(torch.device("cpu")))
    assert "no compiler was found" in reason.text


STRIDES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "heads first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "last not contiguous": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "expanded": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize("layout", STRIDES)
def test_states_of_any_strides(layout: str) -> None:
    torch.manual_seed(1)
    v, s = STRIDES[layout](torch.randn(6, 3, 40)), STRIDES[layout](torch.randn(6, 3))
    out, lse = torch.full((2, 3, 40), math.nan), torch.full((2, 3), math.nan)
    BACKEND.variable_length_merge_states(v, s, int32(0, 4, 6), out, lse)
    for row, rows in enumerate((slice(0, 4), slice(4, 6))):
        weights = (s[rows].double() * math.log(2)).softmax(0)
        want = (v[rows].double() * weights[..., None]).sum(0)
        torch.testing.assert_close(out[row].double(), want, rtol=1e-5, atol=1e-6)
        want_lse = (s[rows].double() * math.log(2)).logsumexp(0) / math.log(2)
        torch.testing.assert_close(lse[row].double(), want_lse, rtol=1e-5, atol=1e-5)
    total = torch.full((3, 3, 40), math.nan)
    BACKEND.attention_sum(v.unflatten(0, (3, 2)), total)
    torch.testing.assert_close(total, v.unflatten(0, (3, 2)).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("which", ["q", "k", "v", "out", "lse", "partial_lse"])
def test_freed_memory_is_not_read(which: str) -> None:
    problem, args = decode(40)
    args.lse = torch.empty(1, 4)
    args.partial = State(torch.zeros_like(args.out), torch.zeros(1, 4))
    plan = BACKEND.plan(request(), problem)
    tensors = {"q": args.q, "k": args.kv[0].k, "v": args.kv[0].v, "out": args.out, "lse": args.lse}
    tensors["partial_lse"] = args.partial.lse
    tensors[which].untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="has no memory: its storage was freed"):
        plan.run(args)


def test_masked_rows_of_a_merge_in_place_are_not_touched() -> None:
    v, s = torch.randn(3, 2, 8), torch.tensor([[-math.inf, 0.0]] * 3)
    before, other = v.clone(), torch.randn(3, 2, 8)
    BACKEND.merge_state_in_place(v, s, other, torch.zeros(3, 2), torch.tensor([False, True, False]))
    assert torch.equal(v[[0, 2]], before[[0, 2]])
    assert torch.equal(v[1, 0], other[1, 0])
    torch.testing.assert_close(v[1, 1], (before[1, 1] + other[1, 1]) / 2)
    assert s[0, 0] == -math.inf
    assert s[1].tolist() == [0.0, 1.0]


def test_a_request_survives_pickling_and_plans_again() -> None:
    problem, args = decode(40)
    BACKEND.plan(pickle.loads(pickle.dumps(request())), problem).run(args)
    torch.testing.assert_close(args.out, plain(problem, args), rtol=1e-5, atol=1e-6)

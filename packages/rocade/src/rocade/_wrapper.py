"""What the batch wrappers share: workspace, the current plan, graph buffers, and the checks of a run.

Letters: T query rows, Hq heads, D head dims. A wrapper is not thread-safe.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypedDict

import torch

from arch_caps import MaskKind, Request
from rocade import _dispatch, _layout, _ops, _request
from rocade._arguments import FLAGS, PLAN, pick, refuse_all
from rocade._dtypes import torch_dtype
from rocade._errors import NotPlannedError, invalid
from rocade._plan import KV, Plan, RepeatablePlan, RunArgs, Source, State, repeatable
from rocade._problem import GraphMemory, Problem
from rocade._request import Scale
from rocade._run_checks import pair, partial_state, queries, result
from rocade._upload import write

Results = torch.Tensor | tuple[torch.Tensor, torch.Tensor]

WORKSPACE_ALIGNMENT = 16  # bytes, as FlashInfer asks for
KEPT_PLANS = 8  # variants of one plan that legacy forward() calls may switch between without planning again


class RunOptions(TypedDict, total=False):
    """Keywords of a paged wrapper's `run` that do not change what it returns."""

    q_scale: Scale
    k_scale: Scale
    v_scale: Scale
    out: torch.Tensor | None
    lse: torch.Tensor | None
    enable_pdl: bool | None
    window_left: int | None
    sinks: torch.Tensor | None
    kv_cache_sf: torch.Tensor | None
    skip_softmax_threshold_scale_factor: float | None


class PlannedValue:
    """A planned value under FlashInfer's private name. Assigning it plans again with the new value."""

    def __init__(self, field: str, read: Callable[[Request], object] | None = None) -> None:
        self._field = field
        self._read = read

    def __get__(self, wrapper: BatchWrapper | None, owner: type) -> object:
        if wrapper is None:
            return self
        request = wrapper._current().request
        return self._read(request) if self._read else getattr(request, self._field)

    def __set__(self, wrapper: BatchWrapper, value: object) -> None:
        wrapper._replan(_request.changed(wrapper._current().request, self._field, value))


class BatchWrapper:
    """Base of the batch wrappers: plan once on the host, run many times.

    Subclasses read FlashInfer's arguments into a Request and a Problem, and say how K and V are laid out.
    """

    _causal = PlannedValue("causal", lambda request: request.mask is MaskKind.CAUSAL)
    _pos_encoding_mode = PlannedValue("pos_encoding_mode", lambda request: request.pos_encoding.value)
    _window_left = PlannedValue("window_left")
    _logits_soft_cap = PlannedValue("logits_soft_cap")
    _sm_scale = PlannedValue("sm_scale")
    _rope_scale = PlannedValue("rope_scale")
    _rope_theta = PlannedValue("rope_theta")

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        backend: str = _dispatch.AUTO,
        *,
        use_cuda_graph: bool = False,
    ) -> None:
        self._float_workspace_buffer = check_workspace("float_workspace_buffer", float_workspace_buffer)
        # Plans keep their integers on the host, so nothing is written here. Engines pass it on.
        self._int_workspace_buffer = float_workspace_buffer.new_empty(0, dtype=torch.uint8)
        self._pin_memory_int_workspace_buffer = torch.empty(0, dtype=torch.uint8, device="cpu")
        self._plan_info: object = None  # written by engines, never read here
        self.device = float_workspace_buffer.device
        self._layout = _layout.kv_layout(kv_layout)
        self._asked_backend = _dispatch.canonical(backend)
        self._use_cuda_graph = bool(use_cuda_graph)
        self._graph: GraphMemory | None = None  # from the first plan on, in graph mode
        self._problem: Problem | None = None
        self._plan: Plan | None = None
        self._repeatable: RepeatablePlan | None = None  # the plan, once it can repeat a run
        self._out_shape: tuple[int, int, int] = (0, 0, 0)
        self._plans: dict[Request, Plan] = {}
        self._out_dtype: torch.dtype | None = None
        self._head_dim_vo = 0
        self._handle = _ops.register(self)

    def __reduce__(self) -> NoReturn:
        # A copy would share the handle, and compiled graphs would run the wrong wrapper's plan.
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled; make a new one")

    @property
    def backend(self) -> str:
        """Name of the backend that serves the current plan, or what was asked for before the first plan."""
        return self._plan.backend if self._plan is not None else self._asked_backend

    @property
    def is_cuda_graph_enabled(self) -> bool:
        """Whether the wrapper keeps fixed buffers for graph capture."""
        return self._use_cuda_graph

    def reset_workspace_buffer(
        self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: torch.Tensor | None = None
    ) -> None:
        """Use other workspaces from now on; the current plan, if any, is made again in them."""
        workspace = check_workspace("float_workspace_buffer", float_workspace_buffer)
        if workspace.device != self.device:
            raise invalid("float_workspace_buffer", f"device {workspace.device}", f"device {self.device}")
        self._float_workspace_buffer = workspace
        if int_workspace_buffer is not None:
            self._int_workspace_buffer = int_workspace_buffer
        if self._plan is not None and self._problem is not None:
            self._adopt(self._plan.request, dataclasses.replace(self._problem, workspace=workspace))

    def end_forward(self) -> None:
        """Do nothing; kept for callers of FlashInfer's old interface."""

    # -- for subclasses

    def _caches(self, caches: Sequence[torch.Tensor]) -> tuple[KV, ...]:
        """Checked NHD views, one per level, of the tensors that the caller passed as K and V."""
        raise NotImplementedError

    def _sources(self, caches: int) -> tuple[Source, ...]:
        """Where each level's K and V are among the tensors of a run with so many caches; empty: not told."""
        return ()

    def _max_keys(self, problem: Problem) -> tuple[int, ...]:
        """Keys that a graph's requests may have together, level by level: those of the first plan."""
        return tuple(int(level.kv_len.sum()) for level in problem.levels)

    def _adopt(self, request: Request, problem: Problem) -> None:
        """Plan, and make it the current plan only when that worked."""
        if self._use_cuda_graph:
            if self._graph is None:
                self._graph = GraphMemory(problem.num_rows, self._max_keys(problem))
            problem = dataclasses.replace(problem, graph=self._graph)
        plan = _dispatch.plan(request, problem, self._asked_backend)
        self._plans = {request: plan}
        self._problem = problem
        self._use(plan)

    def _replan(self, request: Request) -> None:
        """Switch the current plan to other flags for the same plan arrays."""
        problem = self._problem
        if problem is None:
            self._current()
            return
        plan = self._plans.get(request)
        if plan is None:
            plan = _dispatch.plan(request, problem, self._asked_backend)
            if len(self._plans) >= KEPT_PLANS:
                self._plans.clear()
            self._plans[request] = plan
        self._use(plan)

    def _override(self, given: Mapping[str, Any]) -> None:
        """Put the flags of a legacy `forward` call in place of the planned ones."""
        if torch.compiler.is_compiling():
            raise NotImplementedError("forward() plans; call plan(), and run() inside torch.compile")
        refuse_all(given, PLAN)
        planned = self._current().request
        self._replan(_request.overridden(planned, causal=given.get("causal"), **pick(given, FLAGS)))

    def _check_window(self, window_left: int | None) -> None:
        """A window given at run must be the planned one; plans depend on it."""
        if window_left is None:
            return
        planned = self._current().request.window_left
        if _request.window(window_left) != planned:
            raise invalid("window_left", window_left, f"None or {planned}, as planned")

    def _use(self, plan: Plan) -> None:
        request, problem = plan.request, self._problem
        self._plan = plan
        self._out_dtype = torch_dtype(request.o_dtype)
        self._head_dim_vo = request.head_dim_vo
        self._repeatable = None
        rows = 0 if problem is None else problem.num_rows
        self._out_shape = (rows, request.num_qo_heads, request.head_dim_vo)

    def _size(self, request: Request, problem: Problem) -> tuple[int, int]:
        """Bytes of float and int workspace that this plan would take, if it were given as much."""
        own: GraphMemory | None = None
        if self._use_cuda_graph:  # the limits of the graph's plans, but not their memory
            limits = self._graph or GraphMemory(problem.num_rows, self._max_keys(problem))
            own = GraphMemory(limits.max_rows, limits.max_keys)
        problem = dataclasses.replace(problem, workspace=None, graph=own)
        plan = _dispatch.plan(request, problem, self._asked_backend)
        return plan.workspace_bytes, 0

    def _current(self) -> Plan:
        if self._plan is None:
            raise NotPlannedError(f"{type(self).__name__}: call plan() before run()")
        return self._plan

    def _promised(self) -> tuple[torch.dtype, int]:
        """Dtype and head size of the result, which compiled graphs rely on."""
        if self._out_dtype is None:
            raise NotPlannedError(f"{type(self).__name__}: call plan() before run()")
        return self._out_dtype, self._head_dim_vo

    def _run(
        self,
        q: torch.Tensor,
        caches: Sequence[torch.Tensor],
        *,
        q_scale: Scale = None,
        k_scale: Scale = None,
        v_scale: Scale = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        partial: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> Results:
        """Run the current plan; inside `torch.compile`, as one op."""
        if torch.compiler.is_compiling():
            qk = _ops.split_scales((("q_scale", q_scale), ("k_scale", k_scale)))
            v = _ops.split_scales((("v_scale", v_scale),))
            return _ops.attend(self, self._handle, q, caches, qk, v, out, lse, partial, return_lse=return_lse)
        factor = _request.scale("q_scale", q_scale) * _request.scale("k_scale", k_scale)
        v_factor = _request.scale("v_scale", v_scale)
        state = None if partial is None else pair(partial)
        o, s = self._execute(q, caches, factor, v_factor, out, lse, state, return_lse=return_lse)
        return (o, s) if return_lse and s is not None else o

    def _execute(
        self,
        q: torch.Tensor,
        caches: Sequence[torch.Tensor],
        qk_factor: float,
        v_scale: float,
        out: torch.Tensor | None,
        lse: torch.Tensor | None,
        partial: State | None,
        *,
        return_lse: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Check the tensors of one run against the plan and run it; the LSE is None unless wanted."""
        repeats = self._repeatable
        if repeats is not None:
            made = self._repeated(repeats, q, caches, qk_factor, v_scale, out, lse, partial, return_lse)
            if made is not None:
                return made
        return self._checked(q, caches, qk_factor, v_scale, out, lse, partial, return_lse=return_lse)

    def _repeated(
        self,
        plan: RepeatablePlan,
        q: torch.Tensor,
        caches: Sequence[torch.Tensor],
        qk_factor: float,
        v_scale: float,
        out: torch.Tensor | None,
        lse: torch.Tensor | None,
        partial: State | None,
        return_lse: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """The results of a run that the plan could repeat, else None. It compares the tensors itself."""
        if out is None:
            out = torch.empty(self._out_shape, dtype=self._out_dtype, device=self.device)
        if lse is None and return_lse:
            lse = torch.empty(self._out_shape[:2], dtype=torch.float32, device=self.device)
        tensors = _tensors(q, caches, out, lse, partial)
        if plan.repeat(tensors, plan.request.sm_scale * qk_factor, v_scale):
            return out, lse
        return None

    def _checked(
        self,
        q: torch.Tensor,
        caches: Sequence[torch.Tensor],
        qk_factor: float,
        v_scale: float,
        out: torch.Tensor | None,
        lse: torch.Tensor | None,
        partial: State | None,
        *,
        return_lse: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The ordinary way: check every tensor, run, and let the plan remember the run."""
        plan, problem = self._current(), self._problem
        assert problem is not None  # set together with the plan
        request, rows = plan.request, problem.num_rows
        queries(q, request, rows, problem.device, padded=self._use_cuda_graph)
        kv = self._caches(caches)
        shape = (q.shape[0], request.num_qo_heads)
        read = [tensor for level in kv for tensor in level]
        out = result("out", out, (*shape, request.head_dim_vo), torch_dtype(request.o_dtype), q, read)
        if return_lse or lse is not None:
            lse = result("lse", lse, shape, torch.float32, q, (*read, out))
        state = None if partial is None else partial_state(partial, out, lse, rows)
        scale = request.sm_scale * qk_factor
        if q.shape[0] != rows:
            args = RunArgs(q[:rows], kv, *_pad(out, lse, rows), scale, v_scale, state)
            plan.run(args)
            return out, lse
        args = RunArgs(q, kv, out, lse, scale, v_scale, state)
        plan.run(args)
        learner, sources = repeatable(plan), self._sources(len(caches))
        if learner and sources and learner.learn(args, _tensors(q, caches, out, lse, partial), sources):
            self._repeatable = learner
        return out, lse


def _tensors(
    q: torch.Tensor,
    caches: Sequence[torch.Tensor],
    out: torch.Tensor,
    lse: torch.Tensor | None,
    partial: State | None,
) -> Sequence[torch.Tensor]:
    """The tensors of a run in the order that `RepeatablePlan` says."""
    results = (out,) if lse is None else (out, lse)
    return (q, *caches, *results) if partial is None else (q, *caches, *results, *partial)


def check_workspace(name: str, buffer: object) -> torch.Tensor:
    """The caller's workspace as flat bytes."""
    if not isinstance(buffer, torch.Tensor):
        raise invalid(name, type(buffer).__name__, "a uint8 tensor")
    if not buffer.is_contiguous() or buffer.data_ptr() % WORKSPACE_ALIGNMENT:
        raise invalid(
            name, "strided or misaligned memory", f"memory in one piece, {WORKSPACE_ALIGNMENT}-byte aligned"
        )
    return buffer if buffer.dtype is torch.uint8 and buffer.dim() == 1 else buffer.view(-1).view(torch.uint8)


def graph_buffer(
    name: str, buffer: torch.Tensor | None, device: torch.device, entries: int | None = None
) -> torch.Tensor:
    """Check a 1-D int32 buffer for plan arrays, of `entries` entries if that is given."""
    if not isinstance(buffer, torch.Tensor):
        raise invalid(name, type(buffer).__name__, "a tensor, since use_cuda_graph is on")
    if buffer.dtype is not torch.int32 or buffer.dim() != 1 or buffer.device != device:
        given = f"{buffer.dtype} {list(buffer.shape)} on {buffer.device}"
        raise invalid(name, given, f"a 1-D int32 tensor on {device}")
    if entries is not None and buffer.numel() != entries:
        raise invalid(name, f"{buffer.numel()} entries", f"{entries}, batch size + 1")
    return buffer


def persist(name: str, buffer: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Copy `values` into a buffer that a captured graph reads; returns the part of it that is in use."""
    used = values.numel()
    if used > buffer.numel():
        raise invalid(name, f"{used} entries", f"at most {buffer.numel()}, the size of the wrapper's buffer")
    view = buffer[:used]
    if used and view.data_ptr() != values.data_ptr():
        write(view, values)
    return view


def _pad(out: torch.Tensor, lse: torch.Tensor | None, rows: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Fill the rows beyond the plan's as rows without keys, and return the others."""
    out[rows:].zero_()
    if lse is None:
        return out[:rows], None
    lse[rows:].fill_(float("-inf"))
    return out[:rows], lse[:rows]

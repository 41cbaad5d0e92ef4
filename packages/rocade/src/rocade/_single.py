"""One request without a wrapper: plan and run in one call, for single prefill and single decode.

Letters: Hq and Hkv heads, L query tokens, n keys, D head dims.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple

import torch

from arch_caps import Op, Request
from rocade import _dispatch, _emulation, _layout, _mask, _request
from rocade._dtypes import torch_dtype
from rocade._errors import invalid
from rocade._mask import PackedMask
from rocade._plan import KV, Plan, RepeatablePlan, RunArgs, Source, repeatable
from rocade._problem import Level, Problem
from rocade._run_checks import queries

Tensor = torch.Tensor


Key = tuple[object, ...]


class Given(NamedTuple):
    """The caller's tensors, and what calls like this one are known by."""

    key: Key
    q: Tensor
    k: Tensor
    v: Tensor
    kinds: tuple[type, ...]  # of the flags


def dense(k: Tensor, v: Tensor, kv_layout: str) -> KV:
    """NHD views of K and V."""
    return _layout.dense(k, v, _layout.kv_layout(kv_layout))


def request_of(op: Op, q: object, kv: KV, kv_layout: str, *, masked: bool, **given: Any) -> Request:
    """The request of one call; shapes and dtypes are those of the tensors, `given` the flags."""
    if not isinstance(q, Tensor) or q.dim() != 3:
        raise invalid(
            "q", list(q.shape) if isinstance(q, Tensor) else type(q).__name__, "[tokens, heads, head_dim]"
        )
    return _request.attention(
        op,
        num_qo_heads=q.shape[1],
        num_kv_heads=kv.k.shape[1],
        head_dim_qk=q.shape[2],
        head_dim_vo=kv.v.shape[2],
        q_dtype=q.dtype,
        kv_dtype=kv.k.dtype,
        kv_layout=_layout.kv_layout(kv_layout),
        custom_mask=masked,
        max_qo_len=q.shape[0],
        max_kv_len=kv.k.shape[0],
        **given,
    )


def query(name: str, q: object, dims: int, expected: str) -> Tensor:
    """A query tensor of so many dimensions."""
    if not isinstance(q, Tensor):
        raise invalid(name, type(q).__name__, f"a tensor {expected}")
    if q.dim() != dims:
        raise invalid(name, f"shape {list(q.shape)}", expected)
    return q


def mask_of(plain: object, packed: Tensor | None, q: Tensor, kv: KV) -> PackedMask | None:
    """The custom mask of one request: bool `[L, n]`, or its packed bits, which win."""
    if plain is None and packed is None:
        return None
    qo_len, kv_len = query("q", q, 3, "[tokens, heads, head_dim]").shape[0], kv.k.shape[0]
    lengths = _ends(qo_len)[1:], _ends(kv_len)[1:]
    if packed is not None:
        return _mask.adopt(packed, *lengths, q.device)
    if not isinstance(plain, Tensor) or plain.shape != (qo_len, kv_len):
        given = f"shape {list(plain.shape)}" if isinstance(plain, Tensor) else type(plain).__name__
        raise invalid("custom_mask", given, f"shape {[qo_len, kv_len]}")
    return _mask.pack(plain.reshape(-1), *lengths, q.device)


def given(
    op: Op,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    named: tuple[str, str],
    flags: tuple[Any, ...],
    *,
    return_lse: bool,
) -> Given | None:
    """The tensors of a call without a mask, with what it is known by; None for what are no tensors.

    `named` are the layout and the backend that was asked for.
    """
    try:
        tensors = (q.shape, k.shape, v.shape, q.dtype, k.dtype, q.device)
    except AttributeError:
        return None
    kinds = tuple(map(type, flags))  # 1 and True are equal, and are not refused alike
    return Given((op, named, flags, kinds, tensors, return_lse, _emulation.current()), q, k, v, kinds)


def repeated(given: Given, factors: tuple[float, float]) -> tuple[Tensor, Tensor | None] | None:
    """The results of a call that an earlier call's plan could repeat, else None; it compares the tensors."""
    known = _find(given)
    if known is None:
        return None
    _, q, k, v, _ = given
    out = torch.empty(known.out, dtype=known.dtype, device=q.device)
    lse = None if known.lse is None else torch.empty(known.lse, dtype=torch.float32, device=q.device)
    tensors = (q, k, v, out) if lse is None else (q, k, v, out, lse)
    plan = known.plan
    return (out, lse) if plan.repeat(tensors, plan.request.sm_scale * factors[0], factors[1]) else None


def attend(
    request: Request,
    q: Tensor,
    kv: KV,
    mask: PackedMask | None,
    backend: str,
    factors: tuple[float, float],
    *,
    return_lse: bool,
    given: Given | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Plan and run one request; the LSE is None unless wanted. `factors` are those of q.k and of v.

    Results have the shape of the caller's q: `given` says what that is, and what calls like it go by.
    """
    queries(q, request, q.shape[0], q.device)
    _layout.check_dense(kv, request, kv.k.shape[0], q.device)
    rows = q.shape[0]
    shape = (rows, request.num_qo_heads)
    out = torch.empty((*shape, request.head_dim_vo), dtype=torch_dtype(request.o_dtype), device=q.device)
    lse = torch.empty(shape, dtype=torch.float32, device=q.device) if return_lse else None
    chosen = _dispatch.select(request, q.device, backend)
    plan = _known_plan(given, chosen.name)
    plan = plan or _dispatch.plan(request, _problem(q, kv, mask), backend, chosen)
    args = RunArgs(q, (kv,), out, lse, request.sm_scale * factors[0], factors[1])
    plan.run(args)
    if given is None:
        return out, lse
    if q.dim() != given.q.dim():
        out, lse = out.squeeze(0), None if lse is None else lse.squeeze(0)
    _learn(given, plan, args, out, lse)
    return out, lse


def _problem(q: Tensor, kv: KV, mask: PackedMask | None) -> Problem:
    rows, keys = q.shape[0], kv.k.shape[0]
    level = Level(_ends(rows), _ends(keys)[1:], kv_indptr=_ends(keys))
    return Problem((level,), rows, q.device, mask)


class _Known(NamedTuple):
    """A plan that calls of one kind share, and the shapes of their results."""

    plan: RepeatablePlan
    out: tuple[int, ...]
    dtype: torch.dtype
    lse: tuple[int, ...] | None


class _Local(threading.local):
    """The plans of a thread: one plan serves one call at a time. The oldest goes first."""

    def __init__(self) -> None:
        self.known: dict[Key, _Known] = {}


_local = _Local()
_KEPT = 64  # plans a thread
_PLAIN = frozenset((bool, int, float, str, type(None), torch.dtype))  # of flags whose value cannot change
_SOURCES = (Source(0, 1, 2),)


def _find(given: Given) -> _Known | None:
    try:
        return _local.known.get(given.key)
    except TypeError:  # a flag that cannot be compared, which the request refuses or reads anew
        return None


def _known_plan(given: Given | None, backend: str) -> Plan | None:
    """The plan of an earlier call of this kind, if it is still what dispatch would choose."""
    known = None if given is None else _find(given)
    if known is None or known.plan.backend != backend:
        return None
    plan = known.plan
    return plan if plan.is_ready() or plan.lend_to_graph() else None


def _learn(given: Given, plan: Plan, args: RunArgs, out: Tensor, lse: Tensor | None) -> None:
    """Keep a plan that can repeat this call."""
    learner = repeatable(plan)
    if learner is None or not learner.is_ready() or not _PLAIN.issuperset(given.kinds):
        return
    tensors = (given.q, given.k, given.v, out) if lse is None else (given.q, given.k, given.v, out, lse)
    if not learner.learn(args, tensors, _SOURCES):
        return
    known = _local.known
    known.pop(given.key, None)
    if len(known) >= _KEPT:
        del known[next(iter(known))]
    known[given.key] = _Known(learner, tuple(out.shape), out.dtype, None if lse is None else tuple(lse.shape))


@functools.lru_cache(maxsize=256)
def _ends(length: int) -> Tensor:
    """int32 host `[0, length]`, the indptr of one request. Shared, so not to be written."""
    return torch.tensor([0, length], dtype=torch.int32, device="cpu")

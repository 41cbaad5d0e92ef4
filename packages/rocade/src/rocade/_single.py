"""One request without a wrapper: plan and run in one call, for single prefill and single decode.

Letters: Hq and Hkv heads, L query tokens, n keys, D head dims.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from arch_caps import Op, Request
from rocade import _dispatch, _layout, _mask, _request
from rocade._dtypes import torch_dtype
from rocade._errors import invalid
from rocade._mask import PackedMask
from rocade._plan import KV, RunArgs
from rocade._problem import Level, Problem
from rocade._run_checks import queries

Tensor = torch.Tensor


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
    qo_len, kv_len = q.shape[0], kv.k.shape[0]
    lengths = _ends(qo_len)[1:], _ends(kv_len)[1:]
    if packed is not None:
        return _mask.adopt(packed, *lengths, q.device)
    if plain is None:
        return None
    if not isinstance(plain, Tensor) or plain.shape != (qo_len, kv_len):
        given = f"shape {list(plain.shape)}" if isinstance(plain, Tensor) else type(plain).__name__
        raise invalid("custom_mask", given, f"shape {[qo_len, kv_len]}")
    return _mask.pack(plain.reshape(-1), *lengths, q.device)


def attend(
    request: Request,
    q: Tensor,
    kv: KV,
    mask: PackedMask | None,
    backend: str,
    factors: tuple[float, float],
    *,
    return_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """Plan and run one request; the LSE is None unless wanted. `factors` are those of q.k and of v."""
    queries(q, request, q.shape[0], q.device)
    _layout.check_dense(kv, request, kv.k.shape[0], q.device)
    rows, keys = q.shape[0], kv.k.shape[0]
    level = Level(_ends(rows), _ends(keys)[1:], kv_indptr=_ends(keys))
    problem = Problem((level,), rows, q.device, mask)
    shape = (rows, request.num_qo_heads)
    out = torch.empty((*shape, request.head_dim_vo), dtype=torch_dtype(request.o_dtype), device=q.device)
    lse = torch.empty(shape, dtype=torch.float32, device=q.device) if return_lse else None
    plan = _dispatch.select(request, q.device, backend).plan(request, problem)
    plan.run(RunArgs(q, (kv,), out, lse, request.sm_scale * factors[0], factors[1]))
    return out, lse


@functools.lru_cache(maxsize=256)
def _ends(length: int) -> Tensor:
    """int32 host `[0, length]`, the indptr of one request. Shared, so not to be written."""
    return torch.tensor([0, length], dtype=torch.int32, device="cpu")

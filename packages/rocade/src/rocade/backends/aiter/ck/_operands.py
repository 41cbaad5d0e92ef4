"""Tensors of one run in the words of AITER's calls: addresses, strides in elements, sizes.

Letters: T query rows, Hq and Hkv heads, D head dim, N pages of the pool, S page size, n dense K/V rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from arch_caps import Request
from rocade._errors import invalid
from rocade.backends.aiter._mask_need import mask_of
from rocade_kernels.aiter.calls import Lse, Rows

_REACH = 1 << 31  # bytes; the kernels reach a request's rows by signed 32-bit offsets


class Operands(NamedTuple):
    """What one call reads and writes, all on one device, and every row readable (`_readable`)."""

    q: torch.Tensor  # [T, Hq, D]
    k: torch.Tensor  # [n, Hkv, D], or pages [N, S, Hkv, D]
    v: torch.Tensor
    out: torch.Tensor  # [T, Hq, D]
    natural: torch.Tensor | None  # fp32 [Hq, T], the LSE; None for a library without
    scale: float  # of the logits


def rows(tensor: torch.Tensor) -> Rows:
    """Query, result or dense key rows `[T, H, D]`; or pages `[N, S, H, D]`, whose page is AITER's batch."""
    batch = tensor.stride(0) if tensor.dim() == 4 else 0
    return Rows(tensor.data_ptr(), tensor.stride(-3), tensor.stride(-2), batch)


def shared(request: Request, batch: int, given: Operands) -> dict[str, Any]:
    """The fields that calls of all families have."""
    mask = mask_of(request)
    natural = given.natural
    return {
        "q": rows(given.q),
        "k": rows(given.k),
        "v": rows(given.v),
        "out": rows(given.out),
        "lse": None if natural is None else Lse(natural.data_ptr(), natural.stride(0)),
        "batch": batch,
        "num_qo_heads": request.num_qo_heads,
        "num_kv_heads": request.num_kv_heads,
        "head_dim_qk": request.head_dim_qk,
        "head_dim_vo": request.head_dim_vo,
        "scale": given.scale,
        "logits_soft_cap": request.logits_soft_cap,
        "causal": mask.causal,
        "window_left": mask.left,
    }


def check_reach(name: str, tensor: torch.Tensor, longest: int) -> None:
    """Refuse dense rows `[n, H, D]` of which one request's are more than the kernels' offsets reach."""
    steps = zip((longest, *tensor.shape[1:]), tensor.stride(), strict=True)
    size = sum((extent - 1) * stride for extent, stride in steps if extent) * tensor.itemsize
    if size >= _REACH:
        raise invalid(name, f"a request of {longest} rows over {size} bytes", f"less than {_REACH} bytes")

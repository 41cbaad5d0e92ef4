"""From a case and its tensors to the public call: one function an operation, FlashInfer's API only.

Optional arguments are spelled in turn as a caller may spell them: a dtype as a name or an object, "no soft
cap" as None or 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import rocade
from arch_caps import Op
from rocade import cascade
from rocade.conformance import memory
from rocade.conformance.cases import AttentionCase
from rocade.conformance.inputs import AttentionInputs, Table
from rocade.conformance.oracle_states import pack_bits

# Arguments are put together as dicts, which the overloads of the typed functions cannot check.
api: Any = rocade
cascade_api: Any = cascade

WORKSPACE_BYTES = 1 << 30  # the grid needed 304 MB on 132 compute units; what is not used takes no memory


class Buffers(NamedTuple):
    """Result tensors that the caller owns, poisoned; None lets the library allocate."""

    out: torch.Tensor | None
    lse: torch.Tensor | None


Kwargs = dict[str, Any]
Result = Any  # what the public call returned


def _workspace(device: torch.device) -> torch.Tensor:
    return torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


def _dtype(case: AttentionCase, which: str) -> torch.dtype | str:
    dtype = memory.TORCH_DTYPES[getattr(case.dtypes, which)]
    return str(dtype).removeprefix("torch.") if case.index % 2 else dtype


def _masks(case: AttentionCase, inputs: AttentionInputs) -> Kwargs:
    """`custom_mask` flat bool, or `packed_custom_mask` with each request on its own byte."""
    if inputs.masks is None:
        return {"causal": case.mask == "causal"}
    # A custom mask overrides causal, so causal is set here where it must not matter.
    device = inputs.q.device
    if case.mask == "packed":
        packed = [byte for mask in inputs.masks for byte in pack_bits(mask.flatten().tolist())]
        return {
            "packed_custom_mask": torch.tensor(packed, dtype=torch.uint8, device=device),
            "causal": True,
        }
    flat = torch.cat([torch.empty(0, dtype=torch.bool), *(mask.flatten() for mask in inputs.masks)])
    return {"custom_mask": flat.to(device), "causal": case.index % 3 == 0}


def _shape(case: AttentionCase, inputs: AttentionInputs) -> Kwargs:
    """What shapes the logits, for every attention call."""
    shaped: Kwargs = {
        "pos_encoding_mode": case.pos_encoding.value,
        "window_left": case.window_left,
        "logits_soft_cap": case.soft_cap or (None if case.index % 2 else 0.0),
    }
    if case.rope != (1.0, 1e4):
        shaped |= {"rope_scale": case.rope[0], "rope_theta": case.rope[1]}
    if inputs.scales.sm is not None:
        shaped["sm_scale"] = inputs.scales.sm
    return shaped


def _scales(inputs: AttentionInputs) -> Kwargs:
    """Run-time scales, those that are given."""
    named = {"q_scale": inputs.scales.q, "k_scale": inputs.scales.k, "v_scale": inputs.scales.v}
    return {name: scale for name, scale in named.items() if scale is not None}


def _run_kwargs(case: AttentionCase, inputs: AttentionInputs, buffers: Buffers) -> Kwargs:
    kwargs = {**_scales(inputs), "return_lse": case.return_lse}
    kwargs |= {name: t for name, t in buffers._asdict().items() if t is not None}
    if inputs.partial is not None:
        kwargs["partial_state"] = inputs.partial
    return kwargs


def _plan_kwargs(case: AttentionCase) -> Kwargs:
    """Dtypes, and how the keys may be split."""
    kwargs: Kwargs = {"q_data_type": _dtype(case, "q")}
    if case.split != "auto":
        kwargs |= {"fixed_split_size": case.split_pages, "disable_split_kv": case.split == "off"}
    if case.dtypes.kv is not case.dtypes.q or case.index % 2:
        kwargs["kv_data_type"] = _dtype(case, "kv")
    if case.dtypes.o is not case.dtypes.q:
        kwargs["o_data_type"] = _dtype(case, "o")
    return kwargs


def _graph_buffers(case: AttentionCase, inputs: AttentionInputs, names: dict[str, str]) -> Kwargs:
    """Persistent buffers of the right sizes under the constructor's names; empty unless graph mode."""
    if case.entry != "graph":
        return {}
    table, device = inputs.tables[0], inputs.q.device
    room = {"indices": 64}
    kwargs: Kwargs = {"use_cuda_graph": True}
    for array, name in names.items():
        size = table.arrays[array].numel() + room.get(array, 0)
        kwargs[name] = torch.full((size,), -1, dtype=torch.int32, device=device)
    if inputs.masks is not None:
        bits = sum(-(-mask.numel() // 8) for mask in inputs.masks)
        kwargs["custom_mask_buf"] = torch.empty(bits + 16, dtype=torch.uint8, device=device)
        kwargs["mask_indptr_buf"] = torch.empty(len(inputs.masks) + 1, dtype=torch.int32, device=device)
    return kwargs


def single_prefill(case: AttentionCase, inputs: AttentionInputs, backend: str, _: Buffers) -> Result:
    """`single_prefill_with_kv_cache`; it takes no q_scale, so that is folded into sm_scale."""
    kwargs = _shape(case, inputs) | _masks(case, inputs)
    if inputs.masks is not None and "custom_mask" in kwargs:
        kwargs["custom_mask"] = inputs.masks[0].to(inputs.q.device)
    if inputs.scales.q is not None and inputs.scales.sm is not None:
        kwargs["sm_scale"] = inputs.scales.sm * inputs.scales.q
    if case.dtypes.o is not case.dtypes.q:
        kwargs["o_dtype"] = memory.TORCH_DTYPES[case.dtypes.o]
    scales = _scales(inputs)
    scales.pop("q_scale", None)
    return api.single_prefill_with_kv_cache(
        inputs.q,
        inputs.pool.k.given,
        inputs.pool.v.given,
        kv_layout=case.layout.value,
        backend=backend,
        return_lse=case.return_lse,
        **kwargs,
        **scales,
    )


def single_decode(case: AttentionCase, inputs: AttentionInputs, backend: str, _: Buffers) -> Result:
    """`single_decode_with_kv_cache`; one query token without its row dimension."""
    result = api.single_decode_with_kv_cache(
        inputs.q[0],
        inputs.pool.k.given,
        inputs.pool.v.given,
        kv_layout=case.layout.value,
        backend=backend,
        return_lse=case.return_lse,
        **_shape(case, inputs),
        **_scales(inputs),
    )
    return tuple(t[None] for t in result) if case.return_lse else result[None]


PREFILL_BUFFERS = {
    "qo_indptr": "qo_indptr_buf",
    "kv_indptr": "paged_kv_indptr_buf",
    "indices": "paged_kv_indices_buf",
    "last_page_len": "paged_kv_last_page_len_buf",
}
RAGGED_BUFFERS = {"qo_indptr": "qo_indptr_buf", "kv_indptr": "kv_indptr_buf"}
DECODE_BUFFERS = {
    "kv_indptr": "paged_kv_indptr_buffer",
    "indices": "paged_kv_indices_buffer",
    "last_page_len": "paged_kv_last_page_len_buffer",
}


def _paged_arrays(table: Table) -> tuple[torch.Tensor, ...]:
    return tuple(table.arrays[name] for name in ("kv_indptr", "indices", "last_page_len"))


def batch_prefill_paged(
    case: AttentionCase, inputs: AttentionInputs, backend: str, buffers: Buffers
) -> Result:
    """`BatchPrefillWithPagedKVCacheWrapper`."""
    wrapper = api.BatchPrefillWithPagedKVCacheWrapper(
        _workspace(inputs.q.device),
        case.layout.value,
        backend=backend,
        **_graph_buffers(case, inputs, PREFILL_BUFFERS),
    )
    wrapper.plan(
        inputs.tables[0].arrays["qo_indptr"],
        *_paged_arrays(inputs.tables[0]),
        case.qo_heads,
        case.kv_heads,
        case.head_dims[0],
        case.page_size,
        head_dim_vo=case.head_dims[1],
        **_masks(case, inputs),
        **_shape(case, inputs),
        **_plan_kwargs(case),
    )
    return wrapper.run(inputs.q, inputs.pool.cache, **_run_kwargs(case, inputs, buffers))


def batch_prefill_ragged(
    case: AttentionCase, inputs: AttentionInputs, backend: str, buffers: Buffers
) -> Result:
    """`BatchPrefillWithRaggedKVCacheWrapper`."""
    wrapper = api.BatchPrefillWithRaggedKVCacheWrapper(
        _workspace(inputs.q.device),
        case.layout.value,
        backend=backend,
        **_graph_buffers(case, inputs, RAGGED_BUFFERS),
    )
    arrays = inputs.tables[0].arrays
    wrapper.plan(
        arrays["qo_indptr"],
        arrays["kv_indptr"],
        case.qo_heads,
        case.kv_heads,
        case.head_dims[0],
        head_dim_vo=case.head_dims[1],
        **_masks(case, inputs),
        **_shape(case, inputs),
        **_plan_kwargs(case),
    )
    return wrapper.run(
        inputs.q, inputs.pool.k.given, inputs.pool.v.given, **_run_kwargs(case, inputs, buffers)
    )


def batch_decode(case: AttentionCase, inputs: AttentionInputs, backend: str, buffers: Buffers) -> Result:
    """`BatchDecodeWithPagedKVCacheWrapper`."""
    wrapper = api.BatchDecodeWithPagedKVCacheWrapper(
        _workspace(inputs.q.device),
        case.layout.value,
        backend=backend,
        **_graph_buffers(case, inputs, DECODE_BUFFERS),
    )
    wrapper.plan(
        *_paged_arrays(inputs.tables[0]),
        case.qo_heads,
        case.kv_heads,
        case.head_dims[0],
        case.page_size,
        q_len_per_req=case.q_len,
        **_shape(case, inputs),
        **_plan_kwargs(case),
    )
    return wrapper.run(inputs.q, inputs.pool.cache, **_run_kwargs(case, inputs, buffers))


def multi_level_cascade(
    case: AttentionCase, inputs: AttentionInputs, backend: str, buffers: Buffers
) -> Result:
    """`MultiLevelCascadeAttentionWrapper`."""
    columns = {name: [t.arrays[name] for t in inputs.tables] for name in PREFILL_BUFFERS}
    graph: Kwargs = {}
    if case.entry == "graph":
        graph = {"use_cuda_graph": True}
        for array, name in PREFILL_BUFFERS.items():
            room = 64 if array == "indices" else 0
            graph[f"{name}_arr"] = [
                torch.full((t.numel() + room,), -1, dtype=torch.int32, device=inputs.q.device)
                for t in columns[array]
            ]
    wrapper = cascade_api.MultiLevelCascadeAttentionWrapper(
        case.levels, _workspace(inputs.q.device), case.layout.value, backend=backend, **graph
    )
    wrapper.plan(
        *(columns[name] for name in PREFILL_BUFFERS),
        case.qo_heads,
        case.kv_heads,
        case.head_dims[0],
        case.page_size,
        causal=case.mask == "causal",
        **_shape(case, inputs),
        **_plan_kwargs(case),
    )
    return wrapper.run(inputs.q, inputs.pool.cache, **_run_kwargs(case, inputs, buffers))


ATTENTION: dict[Op, Callable[[AttentionCase, AttentionInputs, str, Buffers], Result]] = {
    Op.SINGLE_PREFILL: single_prefill,
    Op.SINGLE_DECODE: single_decode,
    Op.BATCH_PREFILL_PAGED: batch_prefill_paged,
    Op.BATCH_PREFILL_RAGGED: batch_prefill_ragged,
    Op.BATCH_DECODE: batch_decode,
    Op.CASCADE: multi_level_cascade,
}

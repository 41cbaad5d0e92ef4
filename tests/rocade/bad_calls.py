"""Well-formed calls of every entry point, for `test_bad_input` to spoil one argument at a time.

Batches are three requests with 2, 0 and 3 query rows over 5, 0 and 9 keys: 4/2 heads of 16, pages of 4, fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.rocade.paged import indptr, int32, rand, workspace

import rocade
from rocade import cascade

Changes = dict[str, Any]
QO, KV, PAGES = [2, 0, 3], [5, 0, 9], [2, 0, 3]
SHAPE = {"num_qo_heads": 4, "num_kv_heads": 2, "page_size": 4}
FP32 = {"q_data_type": "float32"}


def cache(pages: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return rand(pages, 4, 2, 16), rand(pages, 4, 2, 16, seed=1)


def _table(prefix: str) -> Changes:
    return {
        f"{prefix}indptr": indptr(PAGES),
        f"{prefix}indices": int32([4, 0, 2, 5, 1]),
        f"{prefix}last_page_len": int32([1, 0, 1]),
    }


def _split(changes: Changes, init: Changes, plan: Changes, run: Changes) -> tuple[Changes, Changes, Changes]:
    """Put each change where its name belongs; an unknown name goes to run, a dotted one says where."""
    groups = {"init": dict(init), "plan": dict(plan), "run": dict(run)}
    for name, value in changes.items():
        where, _, bare = name.rpartition(".")
        groups[where or next((g for g in groups if bare in groups[g]), "run")][bare] = value
    return groups["init"], groups["plan"], groups["run"]


def _wrapped(
    make: Callable[..., Any], init: Changes, plan: Changes, run: Changes, changes: Changes
) -> object:
    init, plan, run = _split(changes, init, plan, run)
    wrapper = make(**init)
    wrapper.plan(**plan)
    return wrapper.run(*run.pop("positional", ()), **run)


INIT = {"kv_layout": "NHD", "backend": "auto"}
OPTIONS = {"pos_encoding_mode": "NONE", "sm_scale": None, "window_left": -1, "logits_soft_cap": None}


def paged_prefill(**changes: object) -> object:
    plan = {"qo_indptr": indptr(QO), **_table("paged_kv_"), **SHAPE, "head_dim_qk": 16, **OPTIONS, **FP32}
    plan |= {"custom_mask": None, "packed_custom_mask": None}
    init = {"float_workspace_buffer": workspace(), **INIT}
    run = {"q": rand(5, 4, 16), "paged_kv_cache": cache()}
    return _wrapped(rocade.BatchPrefillWithPagedKVCacheWrapper, init, plan, run, changes)


def ragged_prefill(**changes: object) -> object:
    shape = {name: SHAPE[name] for name in ("num_qo_heads", "num_kv_heads")}
    plan = {"qo_indptr": indptr(QO), "kv_indptr": indptr(KV), **shape, "head_dim_qk": 16, **OPTIONS, **FP32}
    plan |= {"custom_mask": None, "packed_custom_mask": None}
    init = {"float_workspace_buffer": workspace(), **INIT}
    run = {"q": rand(5, 4, 16), "k": rand(14, 2, 16), "v": rand(14, 2, 16)}
    return _wrapped(rocade.BatchPrefillWithRaggedKVCacheWrapper, init, plan, run, changes)


def decode(**changes: object) -> object:
    plan = {**_table(""), **SHAPE, "head_dim": 16, **OPTIONS, **FP32, "q_len_per_req": 1}
    init = {"float_workspace_buffer": workspace(), **INIT}
    run = {"q": rand(3, 4, 16), "paged_kv_cache": cache()}
    return _wrapped(rocade.BatchDecodeWithPagedKVCacheWrapper, init, plan, run, changes)


def multi_level(**changes: object) -> object:
    plan = {
        "qo_indptr_arr": [int32([0, 5]), indptr(QO)],
        "paged_kv_indptr_arr": [int32([0, 1]), indptr(PAGES)],
        "paged_kv_indices_arr": [int32([3]), int32([4, 0, 2, 5, 1])],
        "paged_kv_last_page_len": [int32([4]), int32([1, 0, 1])],
        **SHAPE,
        "head_dim": 16,
        **OPTIONS,
        **FP32,
    }
    init = {"num_levels": 2, "float_workspace_buffer": workspace(), **INIT}
    run = {"q": rand(5, 4, 16), "paged_kv_cache": cache()}
    return _wrapped(cascade.MultiLevelCascadeAttentionWrapper, init, plan, run, changes)


def shared_decode(**changes: object) -> object:
    plan = {**_table("unique_kv_"), **SHAPE, "head_dim": 16, "data_type": "float32"}
    init = {"float_workspace_buffer": workspace(), **INIT}
    run = {
        "q": rand(3, 4, 16),
        "k_shared": rand(7, 2, 16),
        "v_shared": rand(7, 2, 16),
        "unique_kv_cache": cache(),
    }
    return _wrapped(cascade.BatchDecodeWithSharedPrefixPagedKVCacheWrapper, init, plan, run, changes)


def single_prefill(**changes: object) -> object:
    args = {"q": rand(3, 4, 16), "k": rand(7, 2, 16), "v": rand(7, 2, 16)}
    return rocade.single_prefill_with_kv_cache(**{**args, **changes})


def single_decode(**changes: object) -> object:
    args = {"q": rand(4, 16), "k": rand(7, 2, 16), "v": rand(7, 2, 16)}
    return rocade.single_decode_with_kv_cache(**{**args, **changes})


def _states(*names: str) -> Changes:
    return {name: rand(5, 3, 16) if name.startswith("v") else rand(5, 3) for name in names}


def merge_state(**changes: object) -> object:
    return cascade.merge_state(**{**_states("v_a", "s_a", "v_b", "s_b"), **changes})


def merge_in_place(**changes: object) -> object:
    return cascade.merge_state_in_place(**{**_states("v", "s", "v_other", "s_other"), **changes})


def merge_states(**changes: object) -> object:
    return cascade.merge_states(**{"v": rand(5, 2, 3, 16), "s": rand(5, 2, 3), **changes})


def variable_merge(**changes: object) -> object:
    args = {"v": rand(5, 3, 16), "s": rand(5, 3), "indptr": int32([0, 2, 5])}
    return cascade.variable_length_merge_states(**{**args, **changes})


def attention_sum(**changes: object) -> object:
    return cascade.attention_sum(**{"v": rand(5, 2, 3, 16), **changes})


def variable_sum(**changes: object) -> object:
    args = {"v": rand(5, 3, 16), "indptr": int32([0, 2, 5])}
    return cascade.variable_length_attention_sum(**{**args, **changes})


def append(**changes: object) -> object:
    args = {
        "append_key": rand(3, 2, 16),
        "append_value": rand(3, 2, 16),
        "batch_indices": int32([0, 2, 2]),
        "positions": int32([4, 7, 8]),
        "paged_kv_cache": cache(),
        "kv_indices": int32([4, 0, 2, 5, 1]),
        "kv_indptr": indptr(PAGES),
        "kv_last_page_len": int32([1, 0, 1]),
    }
    return rocade.append_paged_kv_cache(**{**args, **changes})


def seq_lens(**changes: object) -> object:
    args = {"kv_indptr": indptr(PAGES), "kv_last_page_len": int32([1, 0, 1]), "page_size": 4}
    return rocade.get_seq_lens(**{**args, **changes})


def positions(**changes: object) -> object:
    args = {"append_indptr": indptr(QO), "seq_lens": int32(KV), "nnz": 5}
    return rocade.get_batch_indices_positions(**{**args, **changes})


def packbits(**changes: object) -> object:
    return rocade.packbits(**{"x": torch.ones(9, dtype=torch.bool), **changes})


def segment_packbits(**changes: object) -> object:
    args = {"x": torch.ones(9, dtype=torch.bool), "indptr": int32([0, 4, 9])}
    return rocade.segment_packbits(**{**args, **changes})


CALLS = (
    paged_prefill,
    ragged_prefill,
    decode,
    multi_level,
    shared_decode,
    single_prefill,
    single_decode,
    merge_state,
    merge_in_place,
    merge_states,
    variable_merge,
    attention_sum,
    variable_sum,
    append,
    seq_lens,
    positions,
    packbits,
    segment_packbits,
)

"""FlashInfer's parameters, in its order and with its defaults, written out; what rocade adds comes last."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import needs

import rocade

NO = inspect.Parameter.empty
BATCH_RUN = {"q_scale": None, "k_scale": None, "v_scale": None}
RESULTS = {"out": None, "lse": None, "return_lse": False, "enable_pdl": None}
FLAGS = {"window_left": -1, "logits_soft_cap": None, "sm_scale": None, "rope_scale": None, "rope_theta": None}

SINGLE_PREFILL = {
    **dict.fromkeys(("q", "k", "v"), NO),
    **dict.fromkeys(("scale_q", "scale_k", "scale_v", "o_dtype", "custom_mask", "packed_custom_mask")),
    "causal": False,
    "kv_layout": "NHD",
    "pos_encoding_mode": "NONE",
    "use_fp16_qk_reduction": False,
    "sm_scale": None,
    "window_left": -1,
    "logits_soft_cap": None,
    "rope_scale": None,
    "rope_theta": None,
    "backend": "auto",
    "return_lse": False,
    "kv_cache_sf": None,
    "k_scale": None,
    "v_scale": None,
}
SINGLE_DECODE = {
    **dict.fromkeys(("q", "k", "v"), NO),
    "kv_layout": "NHD",
    "pos_encoding_mode": "NONE",
    "use_tensor_cores": False,
    "q_scale": None,
    "k_scale": None,
    "v_scale": None,
    "window_left": -1,
    "logits_soft_cap": None,
    "sm_scale": None,
    "rope_scale": None,
    "rope_theta": None,
    "return_lse": False,
}
PAGED_INIT = {
    "float_workspace_buffer": NO,
    "kv_layout": "NHD",
    "use_cuda_graph": False,
    **dict.fromkeys(
        (
            "qo_indptr_buf",
            "paged_kv_indptr_buf",
            "paged_kv_indices_buf",
            "paged_kv_last_page_len_buf",
            "custom_mask_buf",
            "mask_indptr_buf",
        )
    ),
    "backend": "auto",
    "jit_args": None,
    "jit_kwargs": None,
}
PAGED_PLAN = {
    **dict.fromkeys(
        (
            "qo_indptr",
            "paged_kv_indptr",
            "paged_kv_indices",
            "paged_kv_last_page_len",
            "num_qo_heads",
            "num_kv_heads",
            "head_dim_qk",
            "page_size",
        ),
        NO,
    ),
    "head_dim_vo": None,
    "custom_mask": None,
    "packed_custom_mask": None,
    "causal": False,
    "pos_encoding_mode": "NONE",
    "use_fp16_qk_reduction": False,
    "sm_scale": None,
    "window_left": -1,
    "logits_soft_cap": None,
    "rope_scale": None,
    "rope_theta": None,
    "q_data_type": "float16",
    "kv_data_type": None,
    "o_data_type": None,
    "non_blocking": True,
    "prefix_len_ptr": None,
    "token_pos_in_items_ptr": None,
    "token_pos_in_items_len": 0,
    "max_item_len_ptr": None,
    "seq_lens": None,
    "seq_lens_q": None,
    "block_tables": None,
    "max_token_per_sequence": None,
    "max_sequence_kv": None,
    "fixed_split_size": None,
    "disable_split_kv": False,
}
PAGED_RUN = {
    "q": NO,
    "paged_kv_cache": NO,
    "args": NO,
    **BATCH_RUN,
    **RESULTS,
    "window_left": None,
    "sinks": None,
    "kv_cache_sf": None,
    "skip_softmax_threshold_scale_factor": None,
    "use_fp16_softmax": None,
    "uses_spcompress": None,
    "partial_state": None,
}
PAGED_FORWARD = {
    "q": NO,
    "paged_kv_cache": NO,
    "causal": False,
    "pos_encoding_mode": "NONE",
    "use_fp16_qk_reduction": False,
    "k_scale": None,
    "v_scale": None,
    **FLAGS,
}
RAGGED_INIT = {
    "float_workspace_buffer": NO,
    "kv_layout": "NHD",
    "use_cuda_graph": False,
    **dict.fromkeys(("qo_indptr_buf", "kv_indptr_buf", "custom_mask_buf", "mask_indptr_buf")),
    "backend": "auto",
    "jit_args": None,
    "jit_kwargs": None,
}
RAGGED_PLAN = {
    **dict.fromkeys(("qo_indptr", "kv_indptr", "num_qo_heads", "num_kv_heads", "head_dim_qk"), NO),
    "head_dim_vo": None,
    "custom_mask": None,
    "packed_custom_mask": None,
    "causal": False,
    "pos_encoding_mode": "NONE",
    "use_fp16_qk_reduction": False,
    **FLAGS,
    "q_data_type": "float16",
    "kv_data_type": None,
    "o_data_type": None,
    "non_blocking": True,
    "prefix_len_ptr": None,
    "token_pos_in_items_ptr": None,
    "token_pos_in_items_len": 0,
    "max_item_len_ptr": None,
    "fixed_split_size": None,
    "disable_split_kv": False,
    **dict.fromkeys(
        (
            "seq_lens",
            "seq_lens_q",
            "max_token_per_sequence",
            "max_sequence_kv",
            "v_indptr",
            "o_indptr",
        )
    ),
}
RAGGED_RUN = {
    **dict.fromkeys(("q", "k", "v", "args"), NO),
    **BATCH_RUN,
    "o_scale": None,
    **RESULTS,
    "kv_cache_sf": None,
}
DECODE_INIT = {
    "float_workspace_buffer": NO,
    "kv_layout": "NHD",
    "use_cuda_graph": False,
    "use_tensor_cores": False,
    "paged_kv_indptr_buffer": None,
    "paged_kv_indices_buffer": None,
    "paged_kv_last_page_len_buffer": None,
    "backend": "auto",
    "jit_args": None,
    "max_seq_len": None,
}
DECODE_SIZES = dict.fromkeys(
    ("indptr", "indices", "last_page_len", "num_qo_heads", "num_kv_heads", "head_dim", "page_size"), NO
)
DECODE_RUN = {
    "q": NO,
    "paged_kv_cache": NO,
    "args": NO,
    **BATCH_RUN,
    **RESULTS,
    "window_left": None,
    "sinks": None,
    "q_len_per_req": None,
    "skip_softmax_threshold_scale_factor": None,
    "kv_cache_sf": None,
}
DECODE_FORWARD = {"q": NO, "paged_kv_cache": NO, "pos_encoding_mode": "NONE", **BATCH_RUN, **FLAGS}
GRAPH_DECODE_INIT = {
    **dict.fromkeys(("workspace_buffer", "indptr_buffer", "indices_buffer", "last_page_len_buffer"), NO),
    "kv_layout": "NHD",
    "use_tensor_cores": False,
    "backend": "auto",
    "max_seq_len": None,
}
FAST_DECODE_PLAN = {
    **DECODE_SIZES,
    "pos_encoding_mode": "NONE",
    "window_left": -1,
    "logits_soft_cap": None,
    **dict.fromkeys(("q_data_type", "kv_data_type", "data_type", "sm_scale", "rope_scale", "rope_theta")),
    "non_blocking": True,
    "fixed_split_size": None,
    "disable_split_kv": False,
    "global_override_indptr_cpu": None,
}
DECODE_KEYWORDS = {
    "pos_encoding_mode": "NONE",
    "window_left": -1,
    "window_right": 0,
    "logits_soft_cap": None,
    "q_data_type": "float16",
    "kv_data_type": None,
    "o_data_type": None,
    "data_type": None,
    "sm_scale": None,
    "rope_scale": None,
    "rope_theta": None,
    "non_blocking": True,
    "block_tables": None,
    "seq_lens": None,
    "fixed_split_size": None,
    "disable_split_kv": False,
    "q_len_per_req": 1,
}

Paged = rocade.BatchPrefillWithPagedKVCacheWrapper
Ragged = rocade.BatchPrefillWithRaggedKVCacheWrapper
Decode = rocade.BatchDecodeWithPagedKVCacheWrapper

CALLS: list[tuple[Callable[..., Any], dict[str, Any], list[str]]] = [
    (rocade.single_prefill_with_kv_cache, SINGLE_PREFILL, []),
    (rocade.single_decode_with_kv_cache, SINGLE_DECODE, ["backend"]),
    (Paged.__init__, PAGED_INIT, []),
    (Paged.plan, PAGED_PLAN, []),
    (Paged.run, PAGED_RUN, []),
    (Paged.forward, PAGED_FORWARD, []),
    (Paged.forward_return_lse, PAGED_FORWARD, []),
    (Ragged.__init__, RAGGED_INIT, []),
    (Ragged.plan, RAGGED_PLAN, []),
    (Ragged.run, RAGGED_RUN, []),
    (Decode.__init__, DECODE_INIT, []),
    (Decode.plan, {**DECODE_SIZES, "deprecated_positional_args": NO, "kwargs": NO}, []),
    (Decode.begin_forward, {**DECODE_SIZES, "deprecated_positional_args": NO, "kwargs": NO}, []),
    (Decode.run, DECODE_RUN, []),
    (Decode.forward, DECODE_FORWARD, []),
    (Decode.forward_return_lse, DECODE_FORWARD, []),
    (rocade.CUDAGraphBatchDecodeWithPagedKVCacheWrapper.__init__, GRAPH_DECODE_INIT, []),
    (rocade.fast_decode_plan, FAST_DECODE_PLAN, []),
]


@pytest.mark.parametrize(("call", "expected", "added"), CALLS, ids=lambda x: getattr(x, "__qualname__", None))
def test_parameters_are_flashinfers(
    call: Callable[..., Any], expected: dict[str, Any], added: list[str]
) -> None:
    found = {n: p.default for n, p in inspect.signature(call).parameters.items() if n != "self"}
    assert list(found) == [*expected, *added]
    assert {n: found[n] for n in expected} == expected


def test_decode_keywords_are_flashinfers() -> None:
    from rocade._decode_arguments import DEFAULTS, DecodeOptions

    assert dict(DEFAULTS) == DECODE_KEYWORDS
    assert set(DecodeOptions.__annotations__) == set(DECODE_KEYWORDS)


@pytest.mark.parametrize("wrapper", [Paged, Ragged, Decode])
@pytest.mark.parametrize(
    "name",
    [
        "plan",
        "begin_forward",
        "run",
        "run_return_lse",
        "forward",
        "forward_return_lse",
        "end_forward",
        "reset_workspace_buffer",
        "workspace_size",
        "is_cuda_graph_enabled",
        "backend",
    ],
)
def test_every_alias_exists(wrapper: type, name: str) -> None:
    assert getattr(wrapper, name).__doc__


def test_arguments_after_the_variadic_ones_are_keywords() -> None:
    for run in (Paged.run, Ragged.run, Decode.run):
        parameters = list(inspect.signature(run).parameters.values())
        at = next(i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL)
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters[at + 1 :])


TYPED_CALLS = """
import rocade
def use(p: rocade.BatchPrefillWithPagedKVCacheWrapper, r: rocade.BatchPrefillWithRaggedKVCacheWrapper,
        d: rocade.BatchDecodeWithPagedKVCacheWrapper, t: object) -> None:
    reveal_type(p.run(t, t, v_scale=2.0))
    reveal_type(p.run(t, t, return_lse=True, out=t))
    reveal_type(r.run(t, t, t))
    reveal_type(r.run(t, t, t, return_lse=True))
    reveal_type(d.run(t, t, window_left=3))
    reveal_type(d.run(t, t, return_lse=True))
    reveal_type(rocade.single_prefill_with_kv_cache(t, t, t, causal=True))
    reveal_type(rocade.single_prefill_with_kv_cache(t, t, t, return_lse=True))
    reveal_type(rocade.single_decode_with_kv_cache(t, t, t))
    reveal_type(rocade.single_decode_with_kv_cache(t, t, t, return_lse=True))
    d.plan(t, t, t, 8, 2, 64, 16, window_left=3)
    d.plan(t, t, t, 8, 2, 64, 16, window=3)
"""


def test_return_lse_decides_the_type(tmp_path: Path) -> None:
    """What a user's mypy sees through `py.typed` and the overloads; torch is left out: `?` marks it."""
    api = needs.module("mypy.api")
    (tmp_path / "use.py").write_text(TYPED_CALLS)
    config = "[mypy]\nfollow_imports=silent\n[mypy-torch.*]\nfollow_imports=skip\n"
    (tmp_path / "mypy.ini").write_text(config)
    out, err, _ = api.run(
        [f"{tmp_path}/use.py", f"--config-file={tmp_path}/mypy.ini", f"--cache-dir={tmp_path}"]
    )
    types = [line.split('"')[1] for line in out.splitlines() if "Revealed type" in line]
    assert types == ["Tensor?", "tuple[Tensor?, Tensor?]"] * 5, out + err
    errors = [line for line in out.splitlines() if "error:" in line]
    assert len(errors) == 1, out
    assert 'Unexpected keyword argument "window"' in errors[0]

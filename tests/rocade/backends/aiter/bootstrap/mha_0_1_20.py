"""AITER 0.1.20's attention functions, for tests: their signatures, and the libraries they load."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..jit.core import compile_ops


def _middle(given: dict[str, Any], queries: int) -> str:
    """The part about mask and LSE. With one query, causal is dropped."""
    windows = (given["window_size_left"], given["window_size_right"])
    mask = (given["is_causal"] and queries != 1) or windows != (-1, -1)
    lse = "lse" if given["return_softmax_lse"] else "nlse"
    return f"nbias_{'mask' if mask else 'nmask'}_{lse}_ndropout"


def _dtype(q: Tensor) -> str:
    return {torch.float16: "fp16", torch.bfloat16: "bf16"}[q.dtype]


def _logits(given: dict[str, Any]) -> str:
    return "logits" if given["logits_soft_cap"] > 0 else "nlogits"


def _dense(**given: Any) -> dict[str, str]:
    q = given["q"]
    return {"md_name": f"mha_fwd_{_dtype(q)}_{_middle(given, q.shape[1])}_nqscale"}


def _varlen(**given: Any) -> dict[str, str]:
    skip = "skip" if given["min_seqlen_q"] else "nskip"
    start = f"mha_varlen_fwd_{_dtype(given['q'])}_{_logits(given)}"
    return {"md_name": f"{start}_{_middle(given, given['max_seqlen_q'])}_{skip}_nqscale"}


def _prefill(**given: Any) -> dict[str, str]:
    start = f"mha_batch_prefill_{_dtype(given['q'])}_{_logits(given)}"
    return {"md_name": f"{start}_{_middle(given, given['max_seqlen_q'])}_nqscale_nsink"}


@compile_ops("module_mha_fwd", gen_func=_dense)
def mha_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    sink_size: int,
    return_softmax_lse: bool,
    return_dropout_randval: bool,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_kv: Tensor | None = None,
    out: Tensor | None = None,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    sink_ptr: Tensor | None = None,
    gen: torch.Generator | None = None,
) -> None: ...


@compile_ops("module_mha_varlen_fwd", gen_func=_varlen)
def mha_varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    min_seqlen_q: int,
    dropout_p: float,
    softmax_scale: float,
    logits_soft_cap: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    sink_size: int,
    return_softmax_lse: bool,
    return_dropout_randval: bool,
    out: Tensor | None = None,
    block_table: Tensor | None = None,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    gen: torch.Generator | None = None,
    cu_seqlens_q_padded: Tensor | None = None,
    cu_seqlens_k_padded: Tensor | None = None,
    sink_ptr: Tensor | None = None,
) -> None: ...


@compile_ops("module_mha_batch_prefill", gen_func=_prefill)
def mha_batch_prefill(**given: Any) -> None: ...


@compile_ops("module_fmha_v3_fwd")
def fmha_v3_fwd(**given: Any) -> None: ...


def mha_batch_prefill_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    kv_indptr: Tensor,
    kv_page_indices: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    logits_soft_cap: float = 0.0,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_lse: bool = False,
    return_attn_probs: bool = False,
    out: Tensor | None = None,
    kv_last_page_lens: Tensor | None = None,
    block_table: Tensor | None = None,
    seqlen_k: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    kv_block_descale: Tensor | None = None,
    sink_ptr: Tensor | None = None,
    sink_size: int = 0,
) -> None:
    """The public function above the raw op."""
    mha_batch_prefill(
        q=q,
        max_seqlen_q=max_seqlen_q,
        logits_soft_cap=logits_soft_cap,
        is_causal=causal,
        window_size_left=window_size[0],
        window_size_right=window_size[1],
        return_softmax_lse=return_lse,
    )

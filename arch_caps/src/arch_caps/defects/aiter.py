"""Recorded defects of AITER, and of AITER built with certain ROCm versions.

An open window means that no version is known to be right. Sources are public threads and AITER's own code.
"""

from arch_caps._defects import Defect
from arch_caps._predicate import OneOf, Range
from arch_caps._types import DType, MaskKind, Op
from arch_caps._versions import Window

CDNA = ("gfx942", "gfx950")
VARLEN = (
    Op.SINGLE_PREFILL,
    Op.SINGLE_DECODE,
    Op.BATCH_PREFILL_RAGGED,
)  # what mha_varlen_fwd serves with a soft cap
PAGED = (Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE)  # what mha_batch_prefill serves
CAUSAL = ("mask", OneOf(MaskKind.CAUSAL))
CAPPED = ("logits_soft_cap", Range(above=0))

DEFECTS = (
    Defect(
        id="aiter-softcap-causal-hd128-gfx950",
        backend="aiter",
        ops=VARLEN,
        targets=("gfx950",),
        when=(CAUSAL, CAPPED, ("head_dim_qk", OneOf(128))),
        aiter=Window(start="0.1.16"),
        detail="mha_varlen_fwd applies the soft cap wrongly: off by 0.5 to 3.4 at any length, NaN at 256",
        source="https://github.com/AMD-Ecosystem/flashinfer/pull/294",
    ),
    Defect(
        id="aiter-softcap-causal-hd128-gfx942",
        backend="aiter",
        ops=VARLEN,
        targets=("gfx942",),
        when=(CAUSAL, CAPPED, ("head_dim_qk", OneOf(128)), ("max_kv_len", Range(min=512))),
        aiter=Window(start="0.1.16", end="0.1.20"),
        detail="mha_varlen_fwd was reported to apply the soft cap wrongly; a later report finds it right",
        source="https://github.com/AMD-Ecosystem/flashinfer/pull/294",
    ),
    Defect(
        id="aiter-causal-prefill-rocm72-gfx950",
        backend="aiter",
        ops=(Op.BATCH_PREFILL_PAGED, Op.BATCH_PREFILL_RAGGED, Op.BATCH_DECODE),
        targets=("gfx950",),
        when=(CAUSAL, ("logits_soft_cap", OneOf(0.0))),
        rocm=Window(start="7.2", end="7.3"),
        detail="causal batch prefill is miscompiled: 98 % of the elements wrong, largest error 0.6",
        source="https://github.com/ROCm/aiter/issues/2549",
    ),
    Defect(
        id="aiter-single-prefill-hd192-hd256-gfx950",
        backend="aiter",
        ops=(Op.SINGLE_PREFILL,),
        targets=("gfx950",),
        when=(("head_dim_qk", OneOf(192, 256)),),
        rocm=Window(start="7.2", end="7.2.1"),
        aiter=Window(start="0.1.10", end="0.1.11"),
        detail="single prefill is wrong with head dims 192 and 256 (920 failing test cases)",
        source="https://github.com/AMD-Ecosystem/flashinfer/pull/311",
    ),
    Defect(
        id="aiter-causal-grid-gfx950",
        backend="aiter",
        ops=(Op.SINGLE_PREFILL, Op.BATCH_PREFILL_RAGGED),
        targets=("gfx950",),
        when=(CAUSAL, ("q_dtype", OneOf(DType.BF16)), ("head_dim_qk", OneOf(128))),
        aiter=Window(start="0.1.14", end="0.1.16"),
        detail="the assembly kernels' causal grid is launched with the wrong size",
        source="https://github.com/ROCm/aiter/pull/3390",
    ),
    Defect(
        id="aiter-varlen-one-query-fp16-gfx942",
        backend="aiter",
        ops=(Op.BATCH_PREFILL_RAGGED,),
        targets=("gfx942",),
        when=(("q_dtype", OneOf(DType.FP16)), ("max_qo_len", Range(max=1))),
        detail="mha_varlen_fwd is wrong for one query a request in fp16",
        source="https://github.com/ROCm/aiter/issues/2229",
    ),
    Defect(
        id="aiter-varlen-one-query-bf16-gfx942",
        backend="aiter",
        ops=(Op.BATCH_PREFILL_RAGGED,),
        targets=("gfx942",),
        when=(
            ("q_dtype", OneOf(DType.BF16)),
            ("head_dim_qk", OneOf(64, 256)),
            ("max_qo_len", Range(max=1)),
        ),
        detail="mha_varlen_fwd is wrong for one query a request in bf16 with head dims 64 and 256",
        source="https://github.com/ROCm/aiter/issues/2229",
    ),
    Defect(
        id="aiter-page1024-fault-gfx950",
        backend="aiter",
        ops=PAGED,
        targets=("gfx950",),
        when=(("page_size", OneOf(1024)), ("max_kv_len", Range(min=1025))),
        aiter=Window(start="0.1.20"),
        detail="mha_batch_prefill reads outside the cache (memory fault) with more than one page of 1024",
        source="AMD-Ecosystem/flashinfer, AITER 0.1.20 and 0.1.21.post2",
    ),
    Defect(
        id="aiter-page-sizes-before-0-1-12",
        backend="aiter",
        ops=PAGED,
        targets=CDNA,
        when=(("page_size", OneOf(1, 16, 1024)),),
        aiter=Window(end="0.1.12"),
        detail="mha_batch_prefill has kernels for other page sizes only (128, 256 and 1024 in 0.1.10)",
        source="https://github.com/AMD-Ecosystem/flashinfer/pull/191",
    ),
    Defect(
        id="aiter-pool-over-2gib",
        backend="aiter",
        ops=PAGED,
        targets=CDNA,
        when=(("page_size", Range(max=127)),),
        aiter=Window(end="0.1.13"),
        detail="offsets overflow when the page pool exceeds 2 GiB; the pool's size is not known at plan",
        source="https://github.com/ROCm/aiter/pull/2893",
    ),
    Defect(
        id="aiter-page-table-overread",
        backend="aiter",
        ops=PAGED,
        targets=CDNA,
        when=(),
        aiter=Window(end="0.1.14"),
        detail="mha_batch_prefill reads one entry past a tight page table: a fault, or a wrong result",
        source="https://github.com/ROCm/aiter/pull/3032",
    ),
    Defect(
        id="aiter-descriptor-carry",
        backend="aiter",
        ops=PAGED,
        targets=CDNA,
        when=(),
        aiter=Window(end="0.1.18"),
        detail="mha_batch_prefill loses a carry in addresses when the page pool lies high in memory",
        source="https://github.com/ROCm/aiter/issues/3824",
    ),
)

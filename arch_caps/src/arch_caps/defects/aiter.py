"""Recorded defects of AITER's libraries (`aiter_ck`), and of AITER built with certain ROCm versions.

An open window means that no version is known to be right. Sources are public threads and AITER's own code.
"""

from arch_caps._defects import Defect
from arch_caps._predicate import AnyOf, OneOf, Range
from arch_caps._types import DType, MaskKind, Op
from arch_caps._versions import Window
from arch_caps.rows.aiter_ck import NATIVE_PAGE

CDNA = ("gfx942", "gfx950")
SINGLE = (Op.SINGLE_PREFILL, Op.SINGLE_DECODE)
PAGED = (Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE)
BATCH = (Op.BATCH_PREFILL_RAGGED, Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE)
EVERY = (
    Op.SINGLE_PREFILL,
    Op.SINGLE_DECODE,
    Op.BATCH_PREFILL_RAGGED,
    Op.BATCH_PREFILL_PAGED,
    Op.BATCH_DECODE,
)
CAUSAL = ("mask", OneOf(MaskKind.CAUSAL))
CAPPED = ("logits_soft_cap", Range(above=0))
# Which function serves: mha_batch_prefill reads pages of one size; keys in others are gathered, and those and
# dense ones (page size 0) go to mha_varlen_fwd, as a single request with a soft cap does.
IN_PLACE = ("page_size", OneOf(NATIVE_PAGE))
VARLEN = ("page_size", AnyOf(Range(max=1023), Range(above=NATIVE_PAGE)))
FP16 = ("q_dtype", OneOf(DType.FP16))
BF16 = ("q_dtype", OneOf(DType.BF16))
ONE_QUERY = ("max_qo_len", Range(max=1))
HD64_HD256 = ("head_dim_qk", OneOf(64, 256))

DEFECTS = (
    Defect(
        id="aiter-softcap-causal-hd128-gfx950",
        backend="aiter_ck",
        ops=EVERY,
        targets=("gfx950",),
        when=(CAUSAL, CAPPED, ("head_dim_qk", OneOf(128)), VARLEN),
        aiter=Window(start="0.1.16"),
        detail="mha_varlen_fwd applies the soft cap wrongly: off by 0.5 to 3.4 at any length, NaN at 256",
        source="https://github.com/AMD-Ecosystem/flashinfer/pull/294",
    ),
    Defect(
        id="aiter-softcap-causal-hd128-gfx942",
        backend="aiter_ck",
        ops=EVERY,
        targets=("gfx942",),
        when=(CAUSAL, CAPPED, ("head_dim_qk", OneOf(128)), VARLEN, ("max_kv_len", Range(min=512))),
        aiter=Window(start="0.1.16", end="0.1.20"),
        detail="mha_varlen_fwd was reported to apply the soft cap wrongly; a later report finds it right",
        source="https://github.com/AMD-Ecosystem/flashinfer/pull/294",
    ),
    Defect(
        id="aiter-causal-prefill-rocm72-gfx950",
        backend="aiter_ck",
        ops=BATCH,
        targets=("gfx950",),
        when=(CAUSAL, ("logits_soft_cap", OneOf(0.0))),
        rocm=Window(start="7.2", end="7.3"),
        detail="causal batch prefill is miscompiled: 98 % of the elements wrong, largest error 0.6",
        source="https://github.com/ROCm/aiter/issues/2549",
    ),
    Defect(
        id="aiter-single-prefill-hd192-hd256-gfx950",
        backend="aiter_ck",
        ops=(Op.SINGLE_PREFILL,),
        targets=("gfx950",),
        when=(("head_dim_qk", OneOf(192, 256)),),
        rocm=Window(start="7.2", end="7.2.1"),
        aiter=Window(start="0.1.10", end="0.1.11"),
        detail="single prefill is wrong with head dims 192 and 256 (920 failing test cases)",
        source="https://github.com/AMD-Ecosystem/flashinfer/pull/311",
    ),
    Defect(
        id="aiter-varlen-one-query-fp16-gfx942",
        backend="aiter_ck",
        ops=BATCH,
        targets=("gfx942",),
        when=(FP16, ONE_QUERY, VARLEN),
        detail="mha_varlen_fwd is wrong for one query a request in fp16",
        source="https://github.com/ROCm/aiter/issues/2229",
    ),
    Defect(
        id="aiter-varlen-one-query-bf16-gfx942",
        backend="aiter_ck",
        ops=BATCH,
        targets=("gfx942",),
        when=(BF16, HD64_HD256, ONE_QUERY, VARLEN),
        detail="mha_varlen_fwd is wrong for one query a request in bf16 with head dims 64 and 256",
        source="https://github.com/ROCm/aiter/issues/2229",
    ),
    Defect(
        id="aiter-single-varlen-one-query-fp16-gfx942",
        backend="aiter_ck",
        ops=SINGLE,
        targets=("gfx942",),
        when=(FP16, ONE_QUERY, CAPPED),
        detail="mha_varlen_fwd, which serves a soft cap, is wrong for one query in fp16",
        source="https://github.com/ROCm/aiter/issues/2229",
    ),
    Defect(
        id="aiter-single-varlen-one-query-bf16-gfx942",
        backend="aiter_ck",
        ops=SINGLE,
        targets=("gfx942",),
        when=(BF16, HD64_HD256, ONE_QUERY, CAPPED),
        detail="mha_varlen_fwd, which serves a soft cap, is wrong for one query in bf16 with these head dims",
        source="https://github.com/ROCm/aiter/issues/2229",
    ),
    Defect(
        id="aiter-page1024-fault-gfx950",
        backend="aiter_ck",
        ops=PAGED,
        targets=("gfx950",),
        when=(IN_PLACE, ("max_kv_len", Range(above=NATIVE_PAGE))),
        aiter=Window(start="0.1.20"),
        detail="mha_batch_prefill reads outside the cache (memory fault) with more than one page of 1024",
        source="AMD-Ecosystem/flashinfer, AITER 0.1.20 and 0.1.21.post2",
    ),
    Defect(
        id="aiter-page-table-overread",
        backend="aiter_ck",
        ops=PAGED,
        targets=CDNA,
        when=(IN_PLACE,),
        aiter=Window(end="0.1.14"),
        detail="mha_batch_prefill reads one entry past a tight page table: a fault, or a wrong result",
        source="https://github.com/ROCm/aiter/pull/3032",
    ),
    Defect(
        id="aiter-descriptor-carry",
        backend="aiter_ck",
        ops=PAGED,
        targets=CDNA,
        when=(IN_PLACE,),
        aiter=Window(end="0.1.18"),
        detail="mha_batch_prefill loses a carry in addresses when the page pool lies high in memory",
        source="https://github.com/ROCm/aiter/issues/3824",
    ),
)

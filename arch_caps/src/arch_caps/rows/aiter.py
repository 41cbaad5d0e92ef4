"""Rows of backend `aiter`: AMD's AITER kernels, reached by a loader. Planned: every request is refused.

Limits as AITER 0.1.20 asserts them. Its LSE is a natural logarithm, `[heads, tokens]`: the loader converts.
"""

from dataclasses import replace

from arch_caps._predicate import ANY, OneOf, Range, SameAs
from arch_caps._row import Accepts, Lse, Row
from arch_caps._types import DType, Layout, MaskKind, Op, PosEncoding, Status

SOURCE = "AITER 0.1.20, aiter/ops/mha.py and csrc/py_itfs_ck"
CDNA = OneOf("gfx942", "gfx950")
HALVES = OneOf(DType.FP16, DType.BF16)
SAME = SameAs("q_dtype")

DENSE = Accepts(
    q_dtype=HALVES,
    kv_dtype=SAME,
    o_dtype=SAME,
    head_dim_qk=Range(min=8, max=256, multiple_of=8),
    head_dim_vo=SameAs("head_dim_qk"),
    group_size=Range(min=1),
    kv_layout=ANY,
    page_size=OneOf(0),
    mask=OneOf(MaskKind.NONE, MaskKind.CAUSAL),
    window_left=ANY,
    logits_soft_cap=ANY,
    pos_encoding=OneOf(PosEncoding.NONE),
    num_levels=OneOf(1),
    graph=ANY,
    fixed_split_size=OneOf(None),
    disable_split_kv=ANY,
)
PAGED = replace(DENSE, kv_layout=OneOf(Layout.NHD), page_size=OneOf(1, 16, 1024), graph=OneOf(False))

ROWS = (
    Row(
        op=Op.SINGLE_PREFILL,
        backend="aiter",
        status=Status.PLANNED,
        entry="rocade.backends.aiter:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        note="mha_fwd, or mha_varlen_fwd with a soft cap",
    ),
    Row(
        op=Op.SINGLE_DECODE,
        backend="aiter",
        status=Status.PLANNED,
        entry="rocade.backends.aiter:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        note="mha_fwd, or mha_varlen_fwd with a soft cap",
    ),
    Row(
        op=Op.BATCH_PREFILL_PAGED,
        backend="aiter",
        status=Status.PLANNED,
        entry="rocade.backends.aiter:BACKEND.plan",
        targets=CDNA,
        accepts=PAGED,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        note="mha_batch_prefill",
    ),
    Row(
        op=Op.BATCH_PREFILL_RAGGED,
        backend="aiter",
        status=Status.PLANNED,
        entry="rocade.backends.aiter:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        note="mha_varlen_fwd",
    ),
    Row(
        op=Op.BATCH_DECODE,
        backend="aiter",
        status=Status.PLANNED,
        entry="rocade.backends.aiter:BACKEND.plan",
        targets=CDNA,
        accepts=PAGED,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        note="mha_batch_prefill, since paged_attention_v1 has no LSE",
    ),
)

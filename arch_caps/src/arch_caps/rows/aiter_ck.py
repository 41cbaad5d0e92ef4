"""Rows of backend `aiter_ck`: AITER's own libraries (`mha_*`), which hold Composable Kernel's attention.

Limits as AITER 0.1.20 asserts them. Its LSE is a natural logarithm, `[heads, tokens]`: the backend converts.
A page pool is read in place at page size 1024; at other sizes its keys are gathered to dense rows first,
which was measured to be no slower. `paged_attention_v1` is not used: it has no LSE.
"""

from dataclasses import replace

from arch_caps._predicate import ANY, OneOf, Range, SameAs
from arch_caps._row import Accepts, Lse, Row
from arch_caps._types import DType, Layout, MaskKind, Op, PosEncoding, Status

SOURCE = "AITER 0.1.20, aiter/ops/mha.py and csrc/py_itfs_ck"
CDNA = OneOf("gfx942", "gfx950")
HALVES = OneOf(DType.FP16, DType.BF16)
SAME = SameAs("q_dtype")
LOADER = ("packages/kernels/src/rocade_kernels/aiter/loader",)
NATIVE_PAGE = 1024  # tokens; mha_batch_prefill reads such a pool in place

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
    graph=OneOf(False),
    fixed_split_size=OneOf(None),
    disable_split_kv=ANY,
)
PAGED = replace(DENSE, kv_layout=OneOf(Layout.NHD), page_size=Range(min=1))

DENSE_NOTE = "mha_fwd, or mha_varlen_fwd with a soft cap"
PAGED_NOTE = "mha_batch_prefill at page size 1024, else mha_varlen_fwd on gathered keys"
ROWS = (
    Row(
        op=Op.SINGLE_PREFILL,
        backend="aiter_ck",
        status=Status.BUILT,
        entry="rocade.backends.aiter.ck:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        native=LOADER,
        note=DENSE_NOTE,
    ),
    Row(
        op=Op.SINGLE_DECODE,
        backend="aiter_ck",
        status=Status.BUILT,
        entry="rocade.backends.aiter.ck:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        native=LOADER,
        note=DENSE_NOTE,
    ),
    Row(
        op=Op.BATCH_PREFILL_PAGED,
        backend="aiter_ck",
        status=Status.BUILT,
        entry="rocade.backends.aiter.ck:BACKEND.plan",
        targets=CDNA,
        accepts=PAGED,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        native=LOADER,
        note=PAGED_NOTE,
    ),
    Row(
        op=Op.BATCH_PREFILL_RAGGED,
        backend="aiter_ck",
        status=Status.BUILT,
        entry="rocade.backends.aiter.ck:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        native=LOADER,
        note="mha_varlen_fwd",
    ),
    Row(
        op=Op.BATCH_DECODE,
        backend="aiter_ck",
        status=Status.BUILT,
        entry="rocade.backends.aiter.ck:BACKEND.plan",
        targets=CDNA,
        accepts=PAGED,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        native=LOADER,
        note=PAGED_NOTE,
    ),
)

"""Rows of backend `aiter_asm`: AITER's prebuilt code objects, launched without it.

A code object is for one head size and dtype, causal or not. It knows no window, soft cap or pages, whose keys
every run gathers to dense rows. Its LSE is a natural logarithm, `[heads, tokens]`: the backend converts.
"""

from dataclasses import replace

from arch_caps._predicate import ANY, OneOf, Range, SameAs
from arch_caps._row import Accepts, Lse, Row
from arch_caps._types import DType, MaskKind, Op, PosEncoding, Status
from arch_caps.code_objects.aiter import OBJECTS

SOURCE = "AITER's code objects hsa/*/fmha_v3_fwd, as executed"
CDNA = OneOf("gfx942", "gfx950")
SAME = SameAs("q_dtype")

DENSE = Accepts(
    q_dtype=OneOf(DType.BF16),
    kv_dtype=SAME,
    o_dtype=SAME,
    head_dim_qk=OneOf(128),
    head_dim_vo=OneOf(128),
    group_size=Range(min=1),
    kv_layout=ANY,
    page_size=OneOf(0),
    mask=OneOf(MaskKind.NONE, MaskKind.CAUSAL),
    window_left=OneOf(-1),
    logits_soft_cap=OneOf(0.0),
    pos_encoding=OneOf(PosEncoding.NONE),
    num_levels=OneOf(1),
    graph=OneOf(False),
    fixed_split_size=OneOf(None),
    disable_split_kv=ANY,
)
PAGED = replace(DENSE, page_size=Range(min=1))

ROWS = (
    Row(
        op=Op.SINGLE_PREFILL,
        backend="aiter_asm",
        status=Status.BUILT,
        entry="rocade.backends.aiter.asm:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        objects=OBJECTS,
        note="fmha_v3_fwd, group mode",
    ),
    Row(
        op=Op.SINGLE_DECODE,
        backend="aiter_asm",
        status=Status.BUILT,
        entry="rocade.backends.aiter.asm:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        objects=OBJECTS,
        note="fmha_v3_fwd, group mode: a tile of 256 query rows holds one",
    ),
    Row(
        op=Op.BATCH_PREFILL_PAGED,
        backend="aiter_asm",
        status=Status.BUILT,
        entry="rocade.backends.aiter.asm:BACKEND.plan",
        targets=CDNA,
        accepts=PAGED,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        objects=OBJECTS,
        note="fmha_v3_fwd, group mode, on gathered keys",
    ),
    Row(
        op=Op.BATCH_PREFILL_RAGGED,
        backend="aiter_asm",
        status=Status.BUILT,
        entry="rocade.backends.aiter.asm:BACKEND.plan",
        targets=CDNA,
        accepts=DENSE,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        objects=OBJECTS,
        note="fmha_v3_fwd, group mode",
    ),
    Row(
        op=Op.BATCH_DECODE,
        backend="aiter_asm",
        status=Status.BUILT,
        entry="rocade.backends.aiter.asm:BACKEND.plan",
        targets=CDNA,
        accepts=PAGED,
        lse=Lse.NATURAL,
        partial_state=False,
        source=SOURCE,
        objects=OBJECTS,
        note="fmha_v3_fwd, group mode, on gathered keys",
    ),
)

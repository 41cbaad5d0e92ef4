"""Rows of backend `cpu`: native C++ kernels for every attention op, merge, sum and append."""

from dataclasses import replace

from arch_caps._predicate import ANY, AnyOf, OneOf, Range, SameAs
from arch_caps._row import Accepts, Lse, Row
from arch_caps._types import DType, MaskKind, Op, PosEncoding, Status

SOURCE = "rocade.backends.cpu"
NATIVE = ("packages/kernels/src/rocade_kernels/cpu",)
CPUS = OneOf("cpu-x86_64", "cpu-generic")
FLOATS = OneOf(DType.FP32, DType.FP16, DType.BF16)
POSITIVE = Range(min=1)
HEAD_DIM = Range(min=8, max=256, multiple_of=8)
SAME = SameAs("q_dtype")
# The native planner counts heads in 16 bits, and keys in 31 with room for a tile.
MAX_HEADS = Range(max=65536)
MAX_KEYS = 2147418111

PAGED = Accepts(
    q_dtype=FLOATS,
    kv_dtype=SAME,
    o_dtype=SAME,
    head_dim_qk=HEAD_DIM,
    head_dim_vo=HEAD_DIM,
    group_size=POSITIVE,
    kv_layout=ANY,
    page_size=Range(min=1, max=MAX_KEYS),
    mask=ANY,
    window_left=ANY,
    logits_soft_cap=ANY,
    pos_encoding=OneOf(PosEncoding.NONE, PosEncoding.ALIBI),
    num_levels=OneOf(1),
    graph=ANY,
    fixed_split_size=ANY,
    disable_split_kv=ANY,
    num_qo_heads=MAX_HEADS,
    max_kv_len=AnyOf(OneOf(None), Range(max=MAX_KEYS)),
)
DENSE = replace(PAGED, page_size=OneOf(0))
CASCADE = replace(
    PAGED, page_size=Range(max=MAX_KEYS), num_levels=POSITIVE, mask=OneOf(MaskKind.NONE, MaskKind.CAUSAL)
)
STATES = replace(
    PAGED,
    kv_dtype=ANY,
    head_dim_qk=POSITIVE,
    head_dim_vo=POSITIVE,
    group_size=ANY,
    page_size=ANY,
    pos_encoding=ANY,
    num_levels=ANY,
    num_qo_heads=ANY,
    max_kv_len=ANY,
)
APPEND = replace(STATES, q_dtype=ANY, kv_dtype=SAME, o_dtype=ANY, page_size=POSITIVE)

ROWS = (
    Row(
        op=Op.SINGLE_PREFILL,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.plan",
        targets=CPUS,
        accepts=DENSE,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.SINGLE_DECODE,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.plan",
        targets=CPUS,
        accepts=DENSE,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.BATCH_PREFILL_PAGED,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.plan",
        targets=CPUS,
        accepts=PAGED,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.BATCH_PREFILL_RAGGED,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.plan",
        targets=CPUS,
        accepts=DENSE,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.BATCH_DECODE,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.plan",
        targets=CPUS,
        accepts=PAGED,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.CASCADE,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.plan",
        targets=CPUS,
        accepts=CASCADE,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=NATIVE,
        note="any number of levels in one plan",
    ),
    Row(
        op=Op.MERGE_STATE,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.merge_state",
        targets=CPUS,
        accepts=STATES,
        lse=Lse.LOG2,
        partial_state=False,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.MERGE_STATE_IN_PLACE,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.merge_state_in_place",
        targets=CPUS,
        accepts=STATES,
        lse=Lse.LOG2,
        partial_state=False,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.MERGE_STATES,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.merge_states",
        targets=CPUS,
        accepts=STATES,
        lse=Lse.LOG2,
        partial_state=False,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.VARIABLE_LENGTH_MERGE_STATES,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.variable_length_merge_states",
        targets=CPUS,
        accepts=STATES,
        lse=Lse.LOG2,
        partial_state=False,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.ATTENTION_SUM,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.attention_sum",
        targets=CPUS,
        accepts=STATES,
        lse=Lse.NONE,
        partial_state=False,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.VARIABLE_LENGTH_ATTENTION_SUM,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.variable_length_attention_sum",
        targets=CPUS,
        accepts=STATES,
        lse=Lse.NONE,
        partial_state=False,
        source=SOURCE,
        native=NATIVE,
    ),
    Row(
        op=Op.APPEND_PAGED_KV_CACHE,
        backend="cpu",
        status=Status.BUILT,
        entry="rocade.backends.cpu:BACKEND.append_paged_kv_cache",
        targets=CPUS,
        accepts=APPEND,
        lse=Lse.NONE,
        partial_state=False,
        source=SOURCE,
        native=NATIVE,
    ),
)

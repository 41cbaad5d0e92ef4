"""Rows of backend `hip`: our own GPU kernels for every attention op, merge, sum and append."""

from dataclasses import replace

from arch_caps._kernel import Kernel
from arch_caps._predicate import ANY, OneOf, Range, SameAs
from arch_caps._row import Accepts, Lse, Need, Row
from arch_caps._target import Feature
from arch_caps._types import DType, MaskKind, Op, PosEncoding, Status

SOURCE = "rocade.backends.hip"
GPUS = OneOf("gfx942", "gfx950", "sm_80", "sm_90")
HALVES = OneOf(DType.FP16, DType.BF16)
FLOATS = OneOf(DType.FP32, DType.FP16, DType.BF16)
POSITIVE = Range(min=1)
HEAD_DIM = Range(min=8, max=256, multiple_of=8)
STATE_DIM = Range(min=8, max=512, multiple_of=8)
SAME = SameAs("q_dtype")
MATRIX = (
    Need(Feature.MATRIX_FP16, "q_dtype", OneOf(DType.FP16)),
    Need(Feature.MATRIX_BF16, "q_dtype", OneOf(DType.BF16)),
)

PAGED = Accepts(
    q_dtype=HALVES,
    kv_dtype=SAME,
    o_dtype=SAME,
    head_dim_qk=HEAD_DIM,
    head_dim_vo=SameAs("head_dim_qk"),
    group_size=POSITIVE,
    kv_layout=ANY,
    page_size=POSITIVE,
    mask=ANY,
    window_left=ANY,
    logits_soft_cap=ANY,
    pos_encoding=OneOf(PosEncoding.NONE),
    num_levels=OneOf(1),
    graph=ANY,
    fixed_split_size=ANY,
    disable_split_kv=ANY,
)
DENSE = replace(PAGED, page_size=OneOf(0))
CASCADE = replace(PAGED, page_size=ANY, num_levels=POSITIVE, mask=OneOf(MaskKind.NONE, MaskKind.CAUSAL))
STATES = replace(
    PAGED,
    q_dtype=FLOATS,
    kv_dtype=ANY,
    head_dim_qk=STATE_DIM,
    head_dim_vo=STATE_DIM,
    group_size=ANY,
    page_size=ANY,
    pos_encoding=ANY,
    num_levels=ANY,
)
# Bytes are copied, so elements are of any type and rows of any length.
APPEND = replace(
    STATES,
    q_dtype=ANY,
    kv_dtype=SAME,
    o_dtype=ANY,
    head_dim_qk=POSITIVE,
    head_dim_vo=POSITIVE,
    page_size=POSITIVE,
)

CASCADE_SOURCES = (
    "packages/kernels/src/rocade_kernels/hip/arch",
    "packages/kernels/src/rocade_kernels/hip/args.hpp",
    "packages/kernels/src/rocade_kernels/hip/division.hpp",
    "packages/kernels/src/rocade_kernels/include/rocade/arch_caps.hpp",
    "packages/kernels/src/rocade_kernels/hip/compensated.hpp",
    "packages/kernels/src/rocade_kernels/hip/log2_sum.hpp",
    "packages/kernels/src/rocade_kernels/hip/cascade",
)
PAGE_SOURCES = (
    "packages/kernels/src/rocade_kernels/hip/arch",
    "packages/kernels/src/rocade_kernels/hip/args.hpp",
    "packages/kernels/src/rocade_kernels/hip/division.hpp",
    "packages/kernels/src/rocade_kernels/include/rocade/arch_caps.hpp",
    "packages/kernels/src/rocade_kernels/hip/page",
)
ATTENTION_SOURCES = (
    "packages/kernels/src/rocade_kernels/hip/arch",
    "packages/kernels/src/rocade_kernels/hip/args.hpp",
    "packages/kernels/src/rocade_kernels/hip/division.hpp",
    "packages/kernels/src/rocade_kernels/hip/attention",
    "packages/kernels/src/rocade_kernels/include/rocade/arch_caps.hpp",
    "packages/kernels/src/rocade_kernels/hip/compensated.hpp",
    "packages/kernels/src/rocade_kernels/hip/log2_sum.hpp",
    "packages/kernels/src/rocade_kernels/hip/tiles",
    "packages/kernels/src/rocade_kernels/planner",
    "packages/kernels/src/rocade_kernels/cpu/array.hpp",
    "packages/kernels/src/rocade_kernels/cpu/plan.hpp",
    "packages/kernels/src/rocade_kernels/cpu/planner.hpp",
    "packages/kernels/src/rocade_kernels/cpu/planner_tree.cpp",
    "packages/kernels/src/rocade_kernels/cpu/rocade_cpu.h",
)
DTYPES = (DType.FP32, DType.FP16, DType.BF16)
MERGE_STATE = (Kernel(name="merge_state", dtypes=DTYPES, variants=("", "strided")),)
MERGE_STATES = (Kernel(name="merge_states", dtypes=DTYPES),)
HALF_DTYPES = (DType.FP16, DType.BF16)
ATTENTION = (
    Kernel(name="attention", dtypes=HALF_DTYPES, head_dims=(64, 128, 256), variants=("", "decode")),
    Kernel(name="merge_partials", dtypes=HALF_DTYPES),
)
ATTENTION_SUM = (Kernel(name="attention_sum", dtypes=DTYPES),)
APPEND_KERNELS = (Kernel(name="append_paged_kv_cache", variants=("", "strided")),)

ROWS = (
    Row(
        op=Op.SINGLE_PREFILL,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.plan",
        targets=GPUS,
        accepts=DENSE,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=ATTENTION_SOURCES,
        kernels=ATTENTION,
        needs=MATRIX,
    ),
    Row(
        op=Op.SINGLE_DECODE,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.plan",
        targets=GPUS,
        accepts=DENSE,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=ATTENTION_SOURCES,
        kernels=ATTENTION,
        needs=MATRIX,
    ),
    Row(
        op=Op.BATCH_PREFILL_PAGED,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.plan",
        targets=GPUS,
        accepts=PAGED,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=ATTENTION_SOURCES,
        kernels=ATTENTION,
        needs=MATRIX,
    ),
    Row(
        op=Op.BATCH_PREFILL_RAGGED,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.plan",
        targets=GPUS,
        accepts=DENSE,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=ATTENTION_SOURCES,
        kernels=ATTENTION,
        needs=MATRIX,
    ),
    Row(
        op=Op.BATCH_DECODE,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.plan",
        targets=GPUS,
        accepts=PAGED,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=ATTENTION_SOURCES,
        kernels=ATTENTION,
        needs=MATRIX,
    ),
    Row(
        op=Op.CASCADE,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.plan",
        targets=GPUS,
        accepts=CASCADE,
        lse=Lse.LOG2,
        partial_state=True,
        source=SOURCE,
        native=ATTENTION_SOURCES,
        kernels=ATTENTION,
        needs=MATRIX,
        note="any number of levels in one plan",
    ),
    Row(
        op=Op.MERGE_STATE,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.merge_state",
        targets=GPUS,
        accepts=STATES,
        lse=Lse.LOG2,
        partial_state=False,
        source=SOURCE,
        native=CASCADE_SOURCES,
        kernels=MERGE_STATE,
    ),
    Row(
        op=Op.MERGE_STATE_IN_PLACE,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.merge_state_in_place",
        targets=GPUS,
        accepts=STATES,
        lse=Lse.LOG2,
        partial_state=False,
        source=SOURCE,
        native=CASCADE_SOURCES,
        kernels=MERGE_STATE,
    ),
    Row(
        op=Op.MERGE_STATES,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.merge_states",
        targets=GPUS,
        accepts=STATES,
        lse=Lse.LOG2,
        partial_state=False,
        source=SOURCE,
        native=CASCADE_SOURCES,
        kernels=MERGE_STATES,
    ),
    Row(
        op=Op.VARIABLE_LENGTH_MERGE_STATES,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.variable_length_merge_states",
        targets=GPUS,
        accepts=STATES,
        lse=Lse.LOG2,
        partial_state=False,
        source=SOURCE,
        native=CASCADE_SOURCES,
        kernels=MERGE_STATES,
    ),
    Row(
        op=Op.ATTENTION_SUM,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.attention_sum",
        targets=GPUS,
        accepts=STATES,
        lse=Lse.NONE,
        partial_state=False,
        source=SOURCE,
        native=CASCADE_SOURCES,
        kernels=ATTENTION_SUM,
    ),
    Row(
        op=Op.VARIABLE_LENGTH_ATTENTION_SUM,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.variable_length_attention_sum",
        targets=GPUS,
        accepts=STATES,
        lse=Lse.NONE,
        partial_state=False,
        source=SOURCE,
        native=CASCADE_SOURCES,
        kernels=ATTENTION_SUM,
    ),
    Row(
        op=Op.APPEND_PAGED_KV_CACHE,
        backend="hip",
        status=Status.BUILT,
        entry="rocade.backends.hip:BACKEND.append_paged_kv_cache",
        targets=GPUS,
        accepts=APPEND,
        lse=Lse.NONE,
        partial_state=False,
        source=SOURCE,
        native=PAGE_SOURCES,
        kernels=APPEND_KERNELS,
    ),
)

"""The vocabulary of the table: operations, dtypes, layouts, masks, and how sure a fact is.

Plain enums of the standard library, so that builds, docs and tests read the table without torch or a GPU.
"""

from __future__ import annotations

import enum


class Op(enum.StrEnum):
    """A public operation that a backend may implement. The value is the name users see."""

    SINGLE_PREFILL = "single_prefill"
    SINGLE_DECODE = "single_decode"
    BATCH_PREFILL_PAGED = "batch_prefill_paged"
    BATCH_PREFILL_RAGGED = "batch_prefill_ragged"
    BATCH_DECODE = "batch_decode"
    CASCADE = "cascade"
    MERGE_STATE = "merge_state"
    MERGE_STATE_IN_PLACE = "merge_state_in_place"
    MERGE_STATES = "merge_states"
    VARIABLE_LENGTH_MERGE_STATES = "variable_length_merge_states"
    ATTENTION_SUM = "attention_sum"
    VARIABLE_LENGTH_ATTENTION_SUM = "variable_length_attention_sum"
    APPEND_PAGED_KV_CACHE = "append_paged_kv_cache"

    @property
    def is_attention(self) -> bool:
        """True for the operations that read queries, keys and values."""
        return self in ATTENTION_OPS


ATTENTION_OPS = frozenset(
    {
        Op.SINGLE_PREFILL,
        Op.SINGLE_DECODE,
        Op.BATCH_PREFILL_PAGED,
        Op.BATCH_PREFILL_RAGGED,
        Op.BATCH_DECODE,
        Op.CASCADE,
    }
)


class DType(enum.StrEnum):
    """A storage type. fp8 comes in two flavours: OCP (`fn`, plain e5m2) and FNUZ (gfx942)."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    FP8_E4M3_FNUZ = "fp8_e4m3_fnuz"
    FP8_E5M2_FNUZ = "fp8_e5m2_fnuz"

    @property
    def is_fp8(self) -> bool:
        """True for the four 8-bit types, which only a KV cache may have."""
        return self.value.startswith("fp8")

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return 4 if self is DType.FP32 else 1 if self.is_fp8 else 2


class Layout(enum.StrEnum):
    """Order of token and head in K and V: NHD is `[n, heads, dim]`, HND is `[heads, n, dim]`."""

    NHD = "NHD"
    HND = "HND"


class MaskKind(enum.StrEnum):
    """What limits visibility besides the window. A custom mask overrides causal."""

    NONE = "none"
    CAUSAL = "causal"
    CUSTOM = "custom"


class PosEncoding(enum.StrEnum):
    """Position encoding applied inside attention; the values are FlashInfer's spelling."""

    NONE = "NONE"
    ROPE_LLAMA = "ROPE_LLAMA"
    ALIBI = "ALIBI"


class Level(enum.StrEnum):
    """How a target has a feature. `unknown` is a value, and it refuses like `absent` does."""

    NATIVE = "native"
    EMULATED = "emulated"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Status(enum.StrEnum):
    """Whether an implementation exists. `planned` rows are shown in the matrix and refuse every request."""

    BUILT = "built"
    PLANNED = "planned"


class EvidenceKind(enum.StrEnum):
    """What was really done to back a claim, weakest first: compiled, emulated, run on hardware."""

    COMPILED = "compiled"
    EMULATED = "emulated"
    HARDWARE = "hardware"

"""Calls of every entry point with a different number in each place, and the fields that AITER must get."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from rocade_kernels.aiter.calls import Attention, Dense, Lse, Paged, Ragged, Rows
from rocade_kernels.aiter.names import DTYPES, Family, VariantKey

STREAM = 0x5EED
KV_LEN = 100
WINDOWS = (-1, 0, 31, 127, 4096)  # the last two hide nothing of these sequences
PAGE_SIZES = (16, 1024)
CAP = 30.0

Q, K, V = Rows(0x1000, 3, 5, 7), Rows(0x2000, 11, 13, 17), Rows(0x3000, 19, 23, 29)
OUT, LSE = Rows(0x4000, 31, 37, 41), Lse(0x5000, 43, 47)


class Case(NamedTuple):
    """One point of the grid."""

    dtype: str
    causal: bool
    window_left: int
    has_cap: bool
    has_lse: bool
    page_size: int  # 0 where there are none

    @property
    def needs_mask(self) -> bool:
        return self.causal or self.window_left >= 0

    def key(self, family: Family) -> VariantKey:
        return VariantKey(
            family=family,
            dtype=self.dtype,
            needs_mask=self.needs_mask,
            has_lse=self.has_lse,
            has_logits_cap=self.has_cap,
        )


def cases(family: Family) -> list[Case]:
    """The grid of a family; mha_fwd has no soft cap."""
    caps = (False,) if family is Family.MHA_FWD else (False, True)
    pages = PAGE_SIZES if family is Family.MHA_BATCH_PREFILL else (0,)
    flags = (False, True)
    return [Case(*each) for each in product(DTYPES, flags, WINDOWS, caps, flags, pages)]


def call(family: Family, case: Case) -> Attention:
    """The call of a case."""
    common: dict[str, Any] = {
        "q": Q,
        "k": K,
        "v": V,
        "out": OUT,
        "lse": LSE if case.has_lse else None,
        "batch": 53,
        "num_qo_heads": 12,
        "num_kv_heads": 4,
        "head_dim_qk": 59,
        "head_dim_vo": 61,
        "scale": 0.125,
        "logits_soft_cap": CAP if case.has_cap else 0.0,
        "causal": case.causal,
        "window_left": case.window_left,
    }
    if family in (Family.MHA_FWD, Family.FMHA_V3_FWD):
        return Dense(**common, q_len=67, kv_len=KV_LEN)
    common |= {"q_indptr": 0x6000, "kv_indptr": 0x7000, "total_q": 71, "max_q_len": 73}
    if family is Family.MHA_BATCH_PREFILL:
        pages = {"kv_indices": 0x8000, "last_page_len": 0x9000, "page_size": case.page_size, "num_pages": 79}
        return Paged(**common, **pages)
    return Ragged(**common, total_kv=83)


TENSORS: dict[str, object] = {
    "q_ptr": 0x1000,
    "k_ptr": 0x2000,
    "v_ptr": 0x3000,
    "o_ptr": 0x4000,
    "stride_q": 3,
    "stride_k": 11,
    "stride_v": 19,
    "stride_o": 31,
    "nhead_stride_q": 5,
    "nhead_stride_k": 13,
    "nhead_stride_v": 23,
    "nhead_stride_o": 37,
    "batch_stride_q": 7,
    "batch_stride_k": 17,
    "batch_stride_v": 29,
    "batch_stride_o": 41,
    "batch": 53,
    "hdim_q": 59,
    "hdim_v": 61,
    "nhead_q": 12,
    "nhead_k": 4,
    "scale_s": 0.125,
}
ABSENT = (
    *("bias_ptr", "rand_val_ptr", "stride_bias", "stride_randval", "nhead_stride_bias"),
    *("nhead_stride_randval", "batch_stride_bias", "batch_stride_randval", "p_drop", "s_randval"),
    *("drop_seed_offset", "bias_type"),
)
SINCE_0_1_10 = ("q_descale_ptr", "k_descale_ptr", "v_descale_ptr", "sink_ptr", "sink_size", "qscale_type")
DEFAULT_STREAM: dict[str, object] = {
    "stream_id_": STREAM,
    "time_kernel_": 0,
    "log_level_": 0,
    "cold_niters_": 3,
    "nrepeat_": 10,
    "is_gpu_timer_": 1,
    "flush_cache_": 0,
    "rotating_count_": 1,
}
SCALE_STRIDES = [f"{kind}_stride_{t}_descale" for kind in ("nhead", "batch") for t in "qkv"]


def expected(family: Family, case: Case, version: str) -> dict[str, object]:
    """Every field and parameter of the function, by AITER's names."""
    old = version.startswith("0.1.7")
    masked = case.causal or case.window_left >= 0
    fields = TENSORS | DEFAULT_STREAM | dict.fromkeys(ABSENT, 0)
    fields |= {
        "data_type": case.dtype,
        "mask_type": 2 if masked else 0,
        "window_size_left": case.window_left,
        "window_size_right": 0 if case.causal else -1,
        "logits_soft_cap": 30 if case.has_cap else 0,
        "has_lse": int(case.has_lse),
        "lse_ptr": 0x5000 if case.has_lse else 0,
        "nhead_stride_lse": 43 if case.has_lse else 0,
        "batch_stride_lse": 47 if case.has_lse else 0,
    }
    fields |= {"mask": fields["mask_type"]} if old or family is Family.MHA_BATCH_PREFILL else {}
    if not old:
        fields |= dict.fromkeys(SINCE_0_1_10, 0)
    if family is Family.MHA_BATCH_PREFILL:
        return fields | _paged(case, version, old)
    return fields | _rows(family, version, old)


def _paged(case: Case, version: str, old: bool) -> dict[str, object]:
    sizes = {"0.1.7.post2.dev18": 264, "0.1.10": 328}
    fields: dict[str, object] = {
        "sizeof": sizes.get(version, 336),
        "seqstart_q_ptr": 0x6000,
        "seqlen_q": 71,
        "seqlen_k": 79 * case.page_size,
        "max_seqlen_q": 73,
        "num_total_pages": 79,
        "kv_indptr": 0x7000,
        "kv_page_indices": 0x8000,
        "scale_p": 1,
        "scale_o": 1,
        "is_group_mode": 1,
        "use_ext_asm": 0,
    }
    if not old:
        fields |= {
            "page_block_size": case.page_size,
            "kv_memory_layout": 1,  # linear
            "kv_lookup_table": 1,  # one flat list
            "kv_last_page_lens": 0x9000,
            "seqlen_k_ptr": 0,
            "batch_stride_block_table": 0,
        }
    if version not in sizes:
        fields |= {"nblock_stride_kv_block_descale": 0, "nhead_stride_kv_block_descale": 0}
    return fields


def _rows(family: Family, version: str, old: bool) -> dict[str, object]:
    sizes = {"0.1.7.post2.dev18": 280, "0.1.10": 376}
    ragged = family in (Family.MHA_VARLEN_FWD, Family.FMHA_V3_VARLEN_FWD)
    hand_written = family in (Family.FMHA_V3_FWD, Family.FMHA_V3_VARLEN_FWD)
    lengths = ("seqlen_q_ptr", "seqlen_k_ptr", "cu_seqlen_q_ptr", "cu_seqlen_k_ptr", "min_seqlen_q")
    fields: dict[str, object] = dict.fromkeys(lengths, 0)
    fields |= {
        "sizeof": sizes.get(version, 424),
        "seqstart_q_ptr": 0x6000 if ragged else 0,
        "seqstart_k_ptr": 0x7000 if ragged else 0,
        "seqlen_q": 71 if ragged else 67,
        "seqlen_k": 83 if ragged else KV_LEN,
        "max_seqlen_q": 73 if ragged else 67,
        "is_group_mode": int(ragged),
        "use_asm_v3": int(hand_written),
        "v3_api_check": 0,
        "how_v3_bf16_cvt": 0,
    }
    if old:
        padding = ("seqstart_q_padding_ptr", "seqstart_k_padding_ptr")
        return fields | {"scale_p": 1, "scale_o": 1} | dict.fromkeys(padding, 0)
    fields["has_sink"] = 0
    if version not in sizes:
        starts = ("block_scale_seqstart_q_ptr", "block_scale_seqstart_k_ptr")
        fields |= dict.fromkeys((*starts, *SCALE_STRIDES), 0)
        fields |= {"block_scale_size_q": 128, "block_scale_size_kv": 128}
    return fields

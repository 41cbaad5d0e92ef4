"""Requests and paths that the tests of the table share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from arch_caps import DType, Op, Request

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "arch_caps" / "src" / "arch_caps"

PLAIN = Request(
    op=Op.BATCH_DECODE,
    q_dtype=DType.BF16,
    kv_dtype=DType.BF16,
    o_dtype=DType.BF16,
    num_qo_heads=32,
    num_kv_heads=8,
    head_dim_qk=128,
    head_dim_vo=128,
    page_size=16,
)


def request(**changes: object) -> Request:
    """A plain paged decode in bf16, changed by `changes`."""
    return replace(PLAIN, **changes)  # type: ignore[arg-type]

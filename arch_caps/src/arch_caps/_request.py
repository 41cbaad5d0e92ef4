"""`Request`: what one call asks for, as plain data with every default filled in. It holds no tensor.

Wrappers build it once (`rocade._request`), the table judges it, and backends plan from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from arch_caps._types import DType, Layout, MaskKind, Op, PosEncoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call's facts. Lengths are None where a plan cannot know them (page tables on a device)."""

    op: Op
    q_dtype: DType
    kv_dtype: DType
    o_dtype: DType
    num_qo_heads: int
    num_kv_heads: int
    head_dim_qk: int
    head_dim_vo: int
    kv_layout: Layout = Layout.NHD
    page_size: int = 0  # tokens a page; 0 means dense or ragged K/V
    mask: MaskKind = MaskKind.NONE
    window_left: int = -1  # tokens visible to the left of the diagonal; -1 means no limit
    logits_soft_cap: float = 0.0  # 0 means none
    pos_encoding: PosEncoding = PosEncoding.NONE
    sm_scale: float = 1.0  # q_scale and k_scale not yet folded in
    rope_scale: float = 1.0
    rope_theta: float = 1e4
    num_levels: int = 1  # KV ranges a query row attends to: 1, or the cascade's levels
    max_qo_len: int | None = None
    max_kv_len: int | None = None
    graph: bool = False  # planned for graph capture: fixed shapes, buffers owned by the caller
    fixed_split_size: int | None = None  # KV tokens a split, for batch-invariant results
    disable_split_kv: bool = False

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head."""
        return self.num_qo_heads // self.num_kv_heads

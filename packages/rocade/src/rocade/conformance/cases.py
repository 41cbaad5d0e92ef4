"""What one conformance case is: frozen facts from which inputs, the call and the answer all follow.

A `repr` of a case is enough to run it again. `index` is its place in the grid and the seed of its values.
"""

from __future__ import annotations

from dataclasses import dataclass

from arch_caps import DType, Layout, Op, PosEncoding


@dataclass(frozen=True, slots=True)
class DTypes:
    """Storage types of queries, of keys and values, and of the result."""

    q: DType
    kv: DType
    o: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCase:
    """One attention call. Lengths are named (see `lengths`): they depend on the page size and the levels."""

    op: Op
    index: int
    dtypes: DTypes
    head_dims: tuple[int, int]  # of q and k, of v and the result
    group_size: int
    kv_heads: int
    layout: Layout = Layout.NHD
    lengths: str = "one"
    q_len: int = 1  # query tokens a request, for decode
    page_size: int = 0  # 0: dense
    cache: str = "tuple"  # "tuple" of K and V, or "5d"
    storage: str = "contiguous"  # "permuted": the other layout's memory; "padded": rows inside wider rows
    mask: str = "none"  # "causal", "custom" (bool), "packed" (bits)
    window_left: int = -1
    soft_cap: float = 0.0
    pos_encoding: PosEncoding = PosEncoding.NONE
    rope: tuple[float, float] = (1.0, 1e4)  # scale and theta
    scales: str = "default"  # "sm": sm_scale given; "qkv": q, k and v scales too
    plan_arrays: str = (
        "plain"  # "offset": indptr[0] > 0; "long": indices too long; "strided"; "all": all of it
    )
    levels: int = 1
    split: str = "auto"  # "fixed": fixed_split_size; "off": disable_split_kv
    entry: str = "plain"  # "graph": persistent buffers; "legacy": begin_forward and forward
    return_lse: bool = True
    buffers: bool = False  # out= and lse= given
    partial: bool = False  # partial_state= given
    poison: str = "nan"  # what unused memory holds: "nan" or "huge"
    rerun: bool = False  # plan and run twice; the same bits must come out
    terms: str = "random"  # "equal": all keys alike, all values too; queries are 0

    @property
    def qo_heads(self) -> int:
        """Query heads."""
        return self.group_size * self.kv_heads

    @property
    def split_pages(self) -> int | None:
        """`fixed_split_size`, which counts pages, or tokens where there are none."""
        return None if self.split != "fixed" else 2 if self.page_size else 9


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCase:
    """One call of a merge or a sum over partial states."""

    op: Op
    index: int
    dtype: DType
    heads: int
    head_dim: int
    rows: int
    sets: int  # index sets a row; for variable lengths, the most that a row has
    empties: str = "none"  # which states have lse = -inf: "some", "all"; "garbage": some, and their v is NaN
    spread: float = 4.0  # standard deviation of lse, in bits
    storage: str = "contiguous"
    lse_dtype: DType = DType.FP32
    mask: str = "none"  # of the in-place merge: "bool", "uint8"
    terms: str = "random"  # "equal": all states alike, and every list as long as may be


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCase:
    """One call that appends tokens to a paged cache."""

    op: Op
    index: int
    dtype: DType
    kv_heads: int
    head_dims: tuple[int, int]
    layout: Layout
    page_size: int
    cache: str = "tuple"
    storage: str = "contiguous"
    lengths: str = "one"
    plan_arrays: str = "plain"
    padding: int = 0  # tokens with batch index -1


Case = AttentionCase | StateCase | AppendCase

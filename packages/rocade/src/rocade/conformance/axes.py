"""The axes of the conformance grid: for each operation, the values that each fact of a case may take.

`CORE` are the values that every attention backend must serve; an op's other values are in `EXTRA`. Pairs are
covered among the core values alone, and again among all of them, so that a backend which refuses the extra
ones still has every pair of what it accepts covered.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import product

from arch_caps import DType, Layout, Op, PosEncoding
from rocade.conformance import lengths
from rocade.conformance.cases import DTypes

Axes = dict[str, tuple[Hashable, ...]]

FP32, FP16, BF16 = DType.FP32, DType.FP16, DType.BF16
FLOATS = (FP32, FP16, BF16)
HEAD_DIMS = (32, 64, 80, 96, 128, 192, 256)
SQUARE = tuple((dim, dim) for dim in HEAD_DIMS)
GROUP_SIZES = (1, 2, 3, 5, 7, 8, 16, 64)
PAGE_SIZES = (1, 3, 16, 64)
FULL_AXES = ("dtypes", "layout", "mask", "window_left", "soft_cap", "group_size", "head_dims", "page_size")

_DENSE: Axes = {
    "dtypes": tuple(DTypes(d, d, d) for d in FLOATS),
    "layout": tuple(Layout),
    "mask": ("none", "causal", "custom", "packed"),
    "window_left": (-1, 0, 3, 1000),
    "soft_cap": (0.0, 2.0),
    "group_size": GROUP_SIZES,
    "head_dims": (*SQUARE, (192, 128), (32, 80)),
    "kv_heads": (1, 2),
    "pos_encoding": (PosEncoding.NONE, PosEncoding.ALIBI),
    "scales": ("default", "sm", "qkv"),
    "storage": ("contiguous", "permuted", "padded"),
    "return_lse": (True, False),
    "rope": ((1.0, 1e4), (2.0, 5e5)),  # given, and without effect, for the other encodings too
    "poison": ("nan", "huge"),
    "rerun": (False, True),
}
_BATCH: Axes = {
    "plan_arrays": ("plain", "offset", "long", "strided", "all"),
    "buffers": (False, True),
    "entry": ("plain", "graph"),
    "split": ("auto", "fixed", "off"),
}
_PAGED: Axes = {"page_size": PAGE_SIZES, "cache": ("tuple", "5d")}
_EXTRA: Axes = {
    "dtypes": (
        DTypes(FP16, DType.FP8_E4M3, FP16),
        DTypes(BF16, DType.FP8_E5M2, BF16),
        DTypes(BF16, DType.FP8_E4M3_FNUZ, BF16),
        DTypes(FP16, DType.FP8_E5M2_FNUZ, FP16),
        DTypes(FP32, DType.FP8_E4M3, FP32),
    ),
    "pos_encoding": (PosEncoding.ROPE_LLAMA,),
}
_MIXED = (DTypes(BF16, BF16, FP32), DTypes(FP32, BF16, FP32))  # single decode has no argument for them


def _without(axes: Axes, *names: str) -> Axes:
    return {name: values for name, values in axes.items() if name not in names}


CORE: dict[Op, Axes] = {
    Op.SINGLE_PREFILL: {**_DENSE, "lengths": lengths.names("single_prefill")},
    Op.SINGLE_DECODE: {**_without(_DENSE, "mask"), "lengths": lengths.names("single_decode")},
    Op.BATCH_PREFILL_RAGGED: {**_DENSE, **_BATCH, "lengths": lengths.names("prefill")},
    Op.BATCH_PREFILL_PAGED: {
        **_DENSE,
        **_BATCH,
        **_PAGED,
        "partial": (False, True),
        "lengths": lengths.names("prefill"),
    },
    Op.BATCH_DECODE: {
        **_without(_DENSE, "mask"),
        **_BATCH,
        **_PAGED,
        "head_dims": SQUARE,  # plan() takes one head_dim
        "q_len": (1, 2, 4),
        "lengths": lengths.names("decode"),
    },
    Op.CASCADE: {
        **_DENSE,
        **_BATCH,
        **_PAGED,
        "mask": ("none", "causal"),
        "head_dims": SQUARE,
        "levels": (1, 2, 3, 4),
        "partial": (False, True),
        "lengths": lengths.names("cascade"),
    },
}
EXTRA: dict[Op, Axes] = {
    op: _EXTRA if op is Op.SINGLE_DECODE else {**_EXTRA, "dtypes": (*_EXTRA["dtypes"], *_MIXED)}
    for op in CORE
}

_STATES: Axes = {
    "dtype": FLOATS,
    "heads": (1, 3, 8, 32, 128),
    "head_dim": (8, *HEAD_DIMS, 512),
    "rows": (0, 1, 7),
    "sets": (0, 1, 2, 5, 9),
    "empties": ("none", "some", "all", "garbage"),
    "spread": (4.0, 200.0),
    "storage": ("contiguous", "padded"),
    "lse_dtype": (FP32, FP16),
}
_PAIR = {**_STATES, "sets": (2,)}
_SUM = {**_without(_STATES, "empties", "spread", "lse_dtype")}

CORE |= {
    Op.MERGE_STATE: _PAIR,
    Op.MERGE_STATE_IN_PLACE: {**_without(_PAIR, "lse_dtype"), "mask": ("none", "bool", "uint8")},
    Op.MERGE_STATES: _STATES,
    Op.VARIABLE_LENGTH_MERGE_STATES: _without(_STATES, "lse_dtype"),
    Op.ATTENTION_SUM: _SUM,
    Op.VARIABLE_LENGTH_ATTENTION_SUM: _SUM,
    Op.APPEND_PAGED_KV_CACHE: {
        "dtype": (*FLOATS, DType.FP8_E4M3, DType.FP8_E5M2),
        "kv_heads": (1, 2, 8),
        "head_dims": (*SQUARE, (192, 128)),
        "layout": tuple(Layout),
        "page_size": PAGE_SIZES,
        "cache": ("tuple", "5d"),
        "storage": ("contiguous", "permuted", "padded"),
        "lengths": lengths.names("prefill"),
        "plan_arrays": ("plain", "offset", "long", "strided", "all"),
        "padding": (0, 3),
    },
}

# An optional override for the state ops would only repeat the core values.
EXTRA |= {op: {} for op in CORE if op not in EXTRA}


def all_axes(op: Op) -> Axes:
    """Core and extra values of an op together."""
    return {name: (*values, *EXTRA[op].get(name, ())) for name, values in CORE[op].items()}


def full_product(op: Op) -> list[dict[str, Hashable]]:
    """Every combination of the axes that the numerical contract is stated over."""
    axes = CORE[op]
    names = [name for name in FULL_AXES if name in axes]
    return [dict(zip(names, values, strict=True)) for values in product(*(axes[name] for name in names))]


def allowed(facts: Mapping[str, Hashable]) -> bool:
    """Whether facts can stand together in one case: a 5-D cache has one head size for keys and values."""
    dims = facts.get("head_dims")
    if isinstance(dims, tuple) and dims[0] != dims[1] and facts.get("cache") == "5d":
        return False
    return not (facts.get("partial") is True and facts.get("entry") == "graph")

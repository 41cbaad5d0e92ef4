"""Optional arguments of decode's `plan`, which FlashInfer takes by keyword or, in two orders, by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict

import torch

from rocade._request import DTypeLike


class DecodeOptions(TypedDict, total=False):
    """Keywords of `BatchDecodeWithPagedKVCacheWrapper.plan`."""

    pos_encoding_mode: str
    window_left: int
    window_right: int
    logits_soft_cap: float | None
    q_data_type: DTypeLike | None
    kv_data_type: DTypeLike | None
    o_data_type: DTypeLike | None
    data_type: DTypeLike | None
    sm_scale: float | None
    rope_scale: float | None
    rope_theta: float | None
    non_blocking: bool
    block_tables: torch.Tensor | None
    seq_lens: torch.Tensor | None
    fixed_split_size: int | None
    disable_split_kv: bool
    q_len_per_req: int


DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "pos_encoding_mode": "NONE",
        "window_left": -1,
        "window_right": 0,
        "logits_soft_cap": None,
        "q_data_type": "float16",
        "kv_data_type": None,
        "o_data_type": None,
        "data_type": None,
        "sm_scale": None,
        "rope_scale": None,
        "rope_theta": None,
        "non_blocking": True,
        "block_tables": None,
        "seq_lens": None,
        "fixed_split_size": None,
        "disable_split_kv": False,
        "q_len_per_req": 1,
    }
)
# By position: today's order, and that of releases which had no o_data_type (vLLM calls with it).
ORDER = tuple(name for name in DEFAULTS if name != "window_right")
OLD_ORDER = tuple(name for name in ORDER if name not in ("o_data_type", "q_len_per_req"))
_SAME = ORDER.index("o_data_type")  # both orders agree before it


def named(tail: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All optional arguments by name, defaults filled in.

    Raises TypeError for an unknown or repeated name, and for a positional tail that has two readings.
    """
    given = {**DEFAULTS, **kwargs}
    if len(given) != len(DEFAULTS):
        unknown = ", ".join(repr(name) for name in kwargs if name not in DEFAULTS)
        raise TypeError(f"plan() got an unexpected keyword argument {unknown}")
    if tail:
        for name, value in zip(_order(tail), tail, strict=False):
            if name in kwargs:
                raise TypeError(f"plan() got multiple values for argument {name!r}")
            given[name] = value
    return given


def _order(tail: Sequence[Any]) -> tuple[str, ...]:
    """The order a positional tail was written in, told apart by the types at the places where they differ."""
    if len(tail) > len(ORDER):
        raise TypeError(
            f"plan() takes at most {len(ORDER)} optional arguments after page_size; got {len(tail)}"
        )
    fits = [order for order in (ORDER, OLD_ORDER) if _fits(order, tail)]
    if not fits:
        raise TypeError("plan() cannot read these positional arguments after page_size; pass them by keyword")
    if len(fits) == 2 and any(value is not None for value in tail[_SAME:]):
        raise TypeError(
            "plan() can read these positional arguments with or without o_data_type; pass them by keyword"
        )
    return fits[0]


def _fits(order: tuple[str, ...], tail: Sequence[Any]) -> bool:
    """Whether every value of the tail has a type that its place in `order` takes."""
    return len(tail) <= len(order) and all(_takes(n, v) for n, v in zip(order, tail, strict=False))


def _takes(name: str, value: object) -> bool:
    if name == "pos_encoding_mode":
        return isinstance(value, str)
    if value is None:
        return name not in ("non_blocking", "disable_split_kv", "q_len_per_req", "window_left")
    if name.endswith("data_type"):
        return isinstance(value, (str, torch.dtype))
    if name in ("block_tables", "seq_lens"):
        return isinstance(value, torch.Tensor)
    if name in ("non_blocking", "disable_split_kv"):
        return isinstance(value, bool)
    return not isinstance(value, (str, torch.dtype, bool))

"""Compares a backend's result with the oracle, held to what rounding explains."""

from __future__ import annotations

import torch

from arch_caps import DType
from rocade._plan import State
from rocade.conformance import oracle, tolerances
from rocade.conformance.cases import DTypes

NAMES = {torch.float32: DType.FP32, torch.float16: DType.FP16, torch.bfloat16: DType.BF16}


def assert_close(
    got: State, want: oracle.Reference, q_dtype: torch.dtype = torch.float32, *, last_position: float = 0.0
) -> None:
    """`last_position` is the largest position when rotary encoding is on: its angles are that inexact."""
    dtypes = DTypes(NAMES[q_dtype], NAMES[q_dtype], NAMES[got.out.dtype])
    allowed = tolerances.attention(want, dtypes, last_position)
    for name, actual, expected, bound in zip(("out", "lse"), got, want[:2], allowed, strict=True):
        excess, where = tolerances.largest_excess(actual, expected, bound)
        assert excess <= 1, f"{name} is off by {excess:.2f} times the bound {where}"

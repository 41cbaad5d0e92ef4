"""From torch dtypes, and the names users give them, to the table's `DType` and back, in one place."""

from __future__ import annotations

import torch

from arch_caps import DType
from rocade._errors import invalid

_TORCH = {
    DType.FP32: torch.float32,
    DType.FP16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.FP8_E4M3: torch.float8_e4m3fn,
    DType.FP8_E5M2: torch.float8_e5m2,
    DType.FP8_E4M3_FNUZ: torch.float8_e4m3fnuz,
    DType.FP8_E5M2_FNUZ: torch.float8_e5m2fnuz,
}
# torch.float16, "float16", "torch.float16", "fp16" and "half" all mean the same.
_KNOWN: dict[torch.dtype | str, DType] = {
    **{torch_dtype: dtype for dtype, torch_dtype in _TORCH.items()},
    **{str(torch_dtype): dtype for dtype, torch_dtype in _TORCH.items()},
    **{str(torch_dtype).removeprefix("torch."): dtype for dtype, torch_dtype in _TORCH.items()},
    **{dtype.value: dtype for dtype in DType},
    "half": DType.FP16,
    "float": DType.FP32,
}
EXPECTED = "one of " + ", ".join(str(t).removeprefix("torch.") for t in _TORCH.values())


def dtype_of(name: str, value: object) -> DType:
    """The `DType` of a torch dtype or of its name; ValueError names the argument."""
    found = _KNOWN.get(value) if isinstance(value, (torch.dtype, str)) else None
    if found is None:
        raise invalid(name, value if isinstance(value, torch.dtype) else repr(value), EXPECTED)
    return found


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype that stores `dtype`."""
    return _TORCH[dtype]

"""Small things that programs import from FlashInfer besides attention: helpers, enums, probes of chips.

None of them is part of rocade's own interface; `rocade.flashinfer.install()` gives them FlashInfer's names.
"""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Mapping

import torch

API_VERSION = "0.6.18"  # the FlashInfer release whose signatures rocade has


class PosEncodingMode(enum.Enum):
    """FlashInfer's numbers for `pos_encoding_mode`."""

    NONE = 0
    ROPE_LLAMA = 1
    ALIBI = 2


class MaskMode(enum.Enum):
    """FlashInfer's numbers for the kind of mask."""

    NON_CAUSAL = 0
    CAUSAL = 1
    CUSTOM = 2
    MULTIITEMSCORING = 3


class TensorLayout(enum.Enum):
    """FlashInfer's numbers for `kv_layout`."""

    NHD = 0
    HND = 1


def next_positive_power_of_2(x: int) -> int:
    """The smallest power of two that is at least `x`; 1 for anything below."""
    return 1 << max(x - 1, 0).bit_length()


def get_compute_capability(device: torch.device) -> tuple[int, int]:
    """Major and minor version of a GPU, as PyTorch gives it."""
    if device.type != "cuda":
        raise ValueError(f"device: got {device}, expected a GPU")
    return torch.cuda.get_device_capability(device)


def no_tuning(*args: object, **kwargs: object) -> contextlib.AbstractContextManager[None]:
    """A context in which nothing is tuned: rocade chooses when it plans."""
    return contextlib.nullcontext()


@functools.lru_cache(maxsize=64)
def range_buffer(length: int, device: torch.device) -> torch.Tensor:
    """int32 `0..length - 1`, kept: the indptr of a decode batch. Read only."""
    return torch.arange(length, dtype=torch.int32, device=device)


def never(*args: object, **kwargs: object) -> bool:
    """The answer to "does this chip run FlashInfer's kernels for it?": rocade has none of those."""
    return False


_ARCHITECTURES = ("90", "90a", "100", "100a", "100f", "103a", "110a", "12x", "120a", "120f", "121a")

# By FlashInfer module; the empty name is its top level.
NAMES: Mapping[str, Mapping[str, object]] = {
    "": {
        "autotune": no_tuning,
        "next_positive_power_of_2": next_positive_power_of_2,
    },
    "autotuner": {"autotune": no_tuning},
    "decode": {"_get_range_buf": range_buffer},
    "utils": {
        "MaskMode": MaskMode,
        "PosEncodingMode": PosEncodingMode,
        "TensorLayout": TensorLayout,
        "get_compute_capability": get_compute_capability,
        "next_positive_power_of_2": next_positive_power_of_2,
        **{f"is_sm{name}_supported": never for name in _ARCHITECTURES},
    },
    "version": {},
}

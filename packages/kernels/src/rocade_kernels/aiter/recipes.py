"""The Python call that makes AITER build a library, as data for a child process and as text for a person.

Keywords are those of AITER's own functions, which differ: mha_fwd and mha_varlen_fwd say `is_causal` and
`return_softmax_lse`, mha_batch_prefill_func says `causal` and `return_lse`. The dtype is that of q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rocade_kernels import _settings
from rocade_kernels.aiter.names import RAGGED, V3, Family, VariantKey, file_name
from rocade_kernels.aiter.versions import DISTRIBUTION, require

MODULE = "aiter.ops.mha"
TORCH_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
Q_LEN = 2  # with one query AITER drops causal, and builds a library without a mask
KV_LEN = 4
Q_HEADS, KV_HEADS = 2, 2
SOFT_CAP = 0.5  # any but 0
PAGE_TABLE = 256  # entries; old versions read a tile past the end of a table


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor on the GPU: zeros of a shape, or these numbers."""

    shape: tuple[int, ...]
    dtype: str  # as torch names it
    values: tuple[int, ...] | None = None

    def as_data(self) -> dict[str, object]:
        """For JSON: `{"tensor": {"shape": [...], "dtype": "bfloat16", "values": [...] or None}}`."""
        values = None if self.values is None else list(self.values)
        return {"tensor": {"shape": list(self.shape), "dtype": self.dtype, "values": values}}

    def as_text(self) -> str:
        """The call of torch that makes it."""
        tail = f'dtype=torch.{self.dtype}, device="cuda")'
        if self.values is not None:
            return f"torch.tensor({list(self.values)}, {tail}"
        return f"torch.zeros({', '.join(map(str, self.shape))}, {tail}"


Value: TypeAlias = TensorSpec | bool | int | float | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A call of a Python function of AITER. All arguments go by keyword."""

    module: str
    function: str
    kwargs: dict[str, Value]

    def as_data(self) -> dict[str, object]:
        """For JSON; a tensor is as `TensorSpec.as_data` says."""
        data = {
            name: value.as_data() if isinstance(value, TensorSpec) else value
            for name, value in self.kwargs.items()
        }
        return {"module": self.module, "function": self.function, "kwargs": data}

    def as_text(self) -> str:
        """A program of a few lines."""
        tensors = {name: value for name, value in self.kwargs.items() if isinstance(value, TensorSpec)}
        shown = [f"{name}={name if name in tensors else repr(v)}" for name, v in self.kwargs.items()]
        lines = [f"import torch, {self.module}"]
        lines += [f"{name} = {spec.as_text()}" for name, spec in tensors.items()]
        return "\n".join([*lines, f"{self.module}.{self.function}({', '.join(shown)})"])


def recipe(key: VariantKey, version: str, *, head_dim: int = 128, page_size: int | None = None) -> Recipe:
    """What to call so that AITER builds this library.

    Args:
        key: the library.
        version: of AITER.
        head_dim: of q, k and v. A library serves all, yet a call is of one.
        page_size: of mha_batch_prefill. None: one that the version has kernels for.

    Raises:
        UnknownVersionError: `version` is not listed in `versions`.
    """
    known = require(version)
    if key.family is Family.MHA_BATCH_PREFILL:
        sizes = known.page_sizes or (1024,)
        size = page_size or (16 if 16 in sizes else sizes[0])
        return Recipe(MODULE, "mha_batch_prefill_func", _batch_prefill(key, head_dim, size))
    kwargs = _rows(key, head_dim)
    if key.family in RAGGED:
        kwargs |= _ragged_sizes()
    kwargs |= {"dropout_p": 0.0, "softmax_scale": head_dim**-0.5}
    if key.family in RAGGED:
        kwargs |= {"logits_soft_cap": _soft_cap(key), "zero_tensors": False}
    kwargs |= {"is_causal": key.needs_mask, "window_size_left": -1, "window_size_right": -1}
    if known.sink_argument and key.family not in V3:
        kwargs["sink_size"] = 0
    kwargs |= {"return_softmax_lse": key.has_lse, "return_dropout_randval": False}
    if key.family in V3:
        kwargs["how_v3_bf16_cvt"] = 0
    return Recipe(MODULE, key.family, kwargs)


def missing(key: VariantKey, version: str, searched: Sequence[Path]) -> str:
    """The text for a library that no folder holds: its name, the folders, and how to have it built."""
    places = "\n".join(f"  {folder}" for folder in searched)
    program = "\n".join(f"  {line}" for line in recipe(key, version).as_text().splitlines())
    return (
        f"AITER's library {file_name(key, version)} is in none of these folders:\n{places}\n"
        f"`rocade prebuild-aiter` has AITER build it; so does this program, with {DISTRIBUTION} {version} on "
        f"a machine with the GPU and ROCm's compiler:\n{program}\n"
        f"{_settings.AITER_JIT_DIR.name} or {_settings.AITER_VARIANT_DIR.name} names the folder of a library "
        "that was built elsewhere"
    )


def _soft_cap(key: VariantKey) -> float:
    return SOFT_CAP if key.has_logits_cap else 0.0


def _rows(key: VariantKey, head_dim: int) -> dict[str, Value]:
    """q, k and v; those of the dense entry points have a batch of one."""
    batch = () if key.family in RAGGED else (1,)
    dtype = TORCH_DTYPES[key.dtype]
    q = TensorSpec((*batch, Q_LEN, Q_HEADS, head_dim), dtype)
    kv = TensorSpec((*batch, KV_LEN, KV_HEADS, head_dim), dtype)
    return {"q": q, "k": kv, "v": kv}


def _ragged_sizes() -> dict[str, Value]:
    return {
        "cu_seqlens_q": TensorSpec((2,), "int32", (0, Q_LEN)),
        "cu_seqlens_k": TensorSpec((2,), "int32", (0, KV_LEN)),
        "max_seqlen_q": Q_LEN,
        "max_seqlen_k": KV_LEN,
        "min_seqlen_q": 0,  # anything else is another library
    }


def _batch_prefill(key: VariantKey, head_dim: int, page_size: int) -> dict[str, Value]:
    """One request. Pages of one token are a cache of three dimensions, and then have no last page."""
    dtype = TORCH_DTYPES[key.dtype]
    paged = page_size > 1
    cache = TensorSpec((1, page_size, KV_HEADS, head_dim) if paged else (KV_LEN, KV_HEADS, head_dim), dtype)
    kwargs: dict[str, Value] = {
        "q": TensorSpec((Q_LEN, Q_HEADS, head_dim), dtype),
        "k": cache,
        "v": cache,
        "cu_seqlens_q": TensorSpec((2,), "int32", (0, Q_LEN)),
        "kv_indptr": TensorSpec((2,), "int32", (0, 1 if paged else KV_LEN)),
        "kv_page_indices": TensorSpec((PAGE_TABLE,), "int32"),
        "max_seqlen_q": Q_LEN,
        "max_seqlen_k": KV_LEN,
        "dropout_p": 0.0,
        "softmax_scale": head_dim**-0.5,
        "logits_soft_cap": _soft_cap(key),
        "causal": key.needs_mask,
        "window_size": (-1, -1),
        "return_lse": key.has_lse,
    }
    if paged:
        kwargs["kv_last_page_lens"] = TensorSpec((1,), "int32", (KV_LEN,))
    return kwargs

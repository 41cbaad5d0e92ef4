"""Which library of AITER serves a call: families, the traits that are fixed in a library, and file names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocade_kernels.aiter.errors import AiterError
from rocade_kernels.aiter.versions import Entry, require


class Family(StrEnum):
    """A kind of library, by the name of the Python function that makes AITER build it."""

    MHA_FWD = "mha_fwd"
    MHA_VARLEN_FWD = "mha_varlen_fwd"
    MHA_BATCH_PREFILL = "mha_batch_prefill"
    FMHA_V3_FWD = "fmha_v3_fwd"
    FMHA_V3_VARLEN_FWD = "fmha_v3_varlen_fwd"


DTYPES = ("fp16", "bf16")  # AITER's names, in the order of the loader's numbers
V3 = (Family.FMHA_V3_FWD, Family.FMHA_V3_VARLEN_FWD)  # hand-written kernels, one library for all
RAGGED = (Family.MHA_VARLEN_FWD, Family.FMHA_V3_VARLEN_FWD)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantKey:
    """What is fixed when a library is built. A call that differs finds no kernel in it, or a wrong one.

    Head sizes, page size and GPU are not part of it. `needs_mask` is causal, or any window, after a window
    that hides nothing became none.
    """

    family: Family
    dtype: str
    needs_mask: bool
    has_lse: bool
    has_logits_cap: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}, expected one of {', '.join(DTYPES)}")
        if self.has_logits_cap and self.family in (Family.MHA_FWD, *V3):
            raise ValueError(f"{self.family} has no soft cap; mha_varlen_fwd and mha_batch_prefill do")
        if self.family in V3 and self.dtype != "bf16":
            raise ValueError(f"{self.family} is for bf16, not {self.dtype}")


def module_name(key: VariantKey, version: str) -> str:
    """Name of the module, which is also what `aiter` imports.

    Raises:
        UnknownVersionError: `version` is not listed in `versions`.
    """
    known = require(version)
    if key.family in V3:
        return f"module_{key.family}"
    logits = "logits" if key.has_logits_cap else "nlogits"
    parts = [key.family, key.dtype, *([] if key.family is Family.MHA_FWD else [logits]), "nbias"]
    parts += ["mask" if key.needs_mask else "nmask", "lse" if key.has_lse else "nlse", "ndropout"]
    if key.family is Family.MHA_BATCH_PREFILL:
        parts += ["nqscale"] * known.prefill_qscale_in_name + ["nsink"] * known.sink_in_name
    else:
        parts += ["nskip"] * (key.family is Family.MHA_VARLEN_FWD) + ["nqscale"] * known.qscale_in_name
    return "_".join(parts)


def file_name(key: VariantKey, version: str) -> str:
    """Name of the library file; `UnknownVersionError` as `module_name`."""
    return f"{module_name(key, version)}.so"


def entry(key: VariantKey, version: str) -> Entry:
    """The function of the library: its exported symbol and argument layout.

    Raises:
        UnknownVersionError: `version` is not listed in `versions`.
        AiterError: it is, but the layout of this function is not established.
    """
    known = require(version)
    found = known.prefill if key.family is Family.MHA_BATCH_PREFILL else known.forward
    if found is None:
        raise AiterError(f"the argument layout of {key.family} in AITER {version} is not established")
    return found

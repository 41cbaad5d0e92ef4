"""Every environment variable that rocade reads: its name, type, default and meaning. Nothing else reads one.

A setting is read when it is needed, never at import, so a program may change it between two plans.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

_BOOLS = {"": False, "0": False, "1": True}


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable. The settings page of the documentation is generated from these fields."""

    name: str
    type: type[bool]
    default: bool | None  # None: to be unset means something else than 0 and 1
    text: str

    def read(self) -> bool | None:
        """The value now; `ValueError` names the variable when it holds neither 0 nor 1."""
        raw = os.environ.get(self.name)
        if raw is None:
            return self.default
        if raw not in _BOOLS:
            raise ValueError(f"{self.name} is {raw!r}; expected 0 or 1")
        return _BOOLS[raw]


VALIDATE = Setting(
    "ROCADE_VALIDATE",
    bool,
    False,
    "Check index arrays that live on a device, too: they are copied to the host, and page ids, positions, "
    "lengths and row ranges out of range raise ValueError. Costs a synchronisation at each plan, each append "
    "to the cache, and each merge of a varying number of states.",
)

FUSED_CASCADE = Setting(
    "FLASHINFER_HIP_FUSED_CASCADE",
    bool,
    None,
    "How rocade's GPU kernels run a cascade, read at each plan. Unset: all levels at once, and one merge. "
    "1: level by level; each level's kernel merges the state so far into its own result. 0: level by level, "
    "with a merge kernel after each.",
)

SETTINGS = (VALIDATE, FUSED_CASCADE)


def validate() -> bool:
    """Whether device arrays are checked on the host (`ROCADE_VALIDATE`)."""
    return bool(VALIDATE.read())


def fused_cascade() -> bool | None:
    """How a cascade runs on rocade's GPU kernels (`FLASHINFER_HIP_FUSED_CASCADE`); None: in one launch."""
    return FUSED_CASCADE.read()

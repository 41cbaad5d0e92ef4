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
    type: type[bool] | type[int]
    default: bool | int | None  # None: to be unset means something else than any value
    text: str

    def read(self) -> bool | int | None:
        """The value now; `ValueError` names the variable when it holds no 0 or 1, or no number above 0."""
        raw = os.environ.get(self.name)
        if raw is None:
            return self.default
        if self.type is bool:
            if raw not in _BOOLS:
                raise ValueError(f"{self.name} is {raw!r}; expected 0 or 1")
            return _BOOLS[raw]
        if not (raw.isascii() and raw.isdecimal() and int(raw)):
            raise ValueError(f"{self.name} is {raw!r}; expected a whole number above 0")
        return int(raw)


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

AITER_BUILD = Setting(
    "ROCADE_AITER_BUILD",
    bool,
    True,
    "Whether a plan may have AITER compile a library that is missing, which takes minutes. 0: backend "
    "`aiter_ck` then refuses the request, with the call that builds the library. `rocade prebuild-aiter` "
    "always builds.",
)

AITER_BUILD_SECONDS = Setting(
    "ROCADE_AITER_BUILD_SECONDS",
    int,
    3600,
    "How long AITER may take to compile one library, and how long another process is waited for that "
    "compiles the same one. Then the compilers are stopped, and the request is refused.",
)

AITER_STRICT = Setting(
    "FLASHINFER_AITER_STRICT",
    bool,
    False,
    "1: a failure of AITER (no kernel for a page size, a library that cannot be built or is wrong) raises "
    "where otherwise the cache is gathered or another backend is taken.",
)

SETTINGS = (VALIDATE, FUSED_CASCADE, AITER_BUILD, AITER_BUILD_SECONDS, AITER_STRICT)


def validate() -> bool:
    """Whether device arrays are checked on the host (`ROCADE_VALIDATE`)."""
    return bool(VALIDATE.read())


def fused_cascade() -> bool | None:
    """How a cascade runs on rocade's GPU kernels (`FLASHINFER_HIP_FUSED_CASCADE`); None: in one launch."""
    return None if (chosen := FUSED_CASCADE.read()) is None else bool(chosen)


def aiter_build() -> bool:
    """Whether a plan may have AITER compile what is missing (`ROCADE_AITER_BUILD`)."""
    return bool(AITER_BUILD.read())


def aiter_build_seconds() -> int:
    """How long one build may take (`ROCADE_AITER_BUILD_SECONDS`)."""
    return int(AITER_BUILD_SECONDS.read() or 0)


def aiter_strict() -> bool:
    """Whether a failure of AITER raises where something else could serve (`FLASHINFER_AITER_STRICT`)."""
    return bool(AITER_STRICT.read())


def child_environment(**changes: str | None) -> dict[str, str]:
    """This process's environment with changes, for a program that it starts; None removes a variable."""
    kept = {name: value for name, value in os.environ.items() if name not in changes}
    return kept | {name: value for name, value in changes.items() if value is not None}


def has(name: str) -> bool:
    """Whether another program's variable, which is handed on to it, is set to anything."""
    return bool(os.environ.get(name))

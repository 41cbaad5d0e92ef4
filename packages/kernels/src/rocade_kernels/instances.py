"""`Instance`: one kernel to compile, and how its source, entry point and files are named."""

from __future__ import annotations

from typing import NamedTuple


class Instance(NamedTuple):
    """A kernel and the choices that are made when it is compiled; all others are run-time values."""

    kernel: str  # name of its source in hip/<family>, without the suffix
    target: str
    dtype: str = ""  # "fp16", "bf16", "fp32", or "": it does not matter
    head_dim: int = 0  # 0: any
    variant: str = ""  # "": the plain one

    @property
    def name(self) -> str:
        """Unique among instances, and a file name: `merge_states-bf16-d0-<target>`."""
        parts = (self.kernel, self.dtype, f"d{self.head_dim}", self.variant, self.target)
        return "-".join(part for part in parts if part)

    @property
    def entry(self) -> str:
        """The symbol to launch."""
        return f"rocade_{self.kernel}"

    @property
    def is_ptx(self) -> bool:
        """Whether it is compiled to PTX text; else to an AMD code object."""
        return self.target.startswith("sm_")

    @property
    def defines(self) -> tuple[str, ...]:
        """Compiler flags for the choices."""
        made = (
            f"-DROCADE_DTYPE_{self.dtype.upper()}=1" if self.dtype else "",
            f"-DROCADE_HEAD_DIM={self.head_dim}",
            f"-DROCADE_VARIANT_{self.variant.upper()}=1" if self.variant else "",
        )
        return tuple(flag for flag in made if flag)

"""What AITER's kernels leave to do: our LSE, rows without keys, the scale of v.

Letters: T query rows, Hq query heads, D head dim.
"""

from __future__ import annotations

import torch

from rocade._plan import RunArgs
from rocade.backends.aiter._lse import store_log2
from rocade.backends.aiter._unseen import clear


def finish(
    args: RunArgs, out: torch.Tensor, natural: torch.Tensor | None, unseen: torch.Tensor | None
) -> None:
    """Turn a kernel's results into those of the run.

    Args:
        args: of the run; `args.out` and `args.lse` are written.
        out: `[T, Hq, D]`, what the kernel wrote: `args.out` itself, or memory to copy from.
        natural: fp32 `[Hq, T]`, the kernel's LSE; given if the run has one.
        unseen: int64 on the device, rows that see no key; None for none.
    """
    if args.lse is not None:
        assert natural is not None, "an LSE is wanted and the kernel gave none"
        store_log2(natural, args.lse)
    if unseen is not None:
        clear(unseen, out, args.lse)
    if args.v_scale != 1.0:
        out.mul_(args.v_scale)
    if out is not args.out:
        args.out.copy_(out)

"""What AITER's kernels leave to do: our LSE, rows without keys, the scale of v, a partial state.

Letters: T query rows, Hq query heads, D head dim.
"""

from __future__ import annotations

import torch

from rocade._plan import RunArgs
from rocade.backends.aiter._lse import store_log2
from rocade.backends.aiter._unseen import clear
from rocade.backends.torch._states import merge_pair_into


def wants_lse(args: RunArgs) -> bool:
    """Whether a run needs the kernel's LSE: the caller asks for it, or a partial state is merged by it."""
    return args.lse is not None or args.partial is not None


def finish(
    args: RunArgs, out: torch.Tensor, natural: torch.Tensor | None, unseen: torch.Tensor | None
) -> None:
    """Turn a kernel's results into those of the run.

    Args:
        args: of the run; `args.out` and `args.lse` are written.
        out: `[T, Hq, D]`, what the kernel wrote: `args.out` itself, or memory to copy from.
        natural: fp32 `[Hq, T]`, the kernel's LSE; given if `wants_lse`.
        unseen: int64 on the device, rows that see no key; None for none.
    """
    lse = args.lse
    if wants_lse(args):
        assert natural is not None, "an LSE is wanted and the kernel gave none"
        lse = natural.new_empty(natural.shape[::-1]) if lse is None else lse
        store_log2(natural, lse)
    if unseen is not None:
        clear(unseen, out, lse)
    if args.v_scale != 1.0:
        out.mul_(args.v_scale)
    if args.partial is not None:
        assert lse is not None
        merge_pair_into(out, lse, args.partial.out, args.partial.lse, out, lse)
    if out is not args.out:
        args.out.copy_(out)

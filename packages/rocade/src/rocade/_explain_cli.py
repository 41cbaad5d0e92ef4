"""`rocade explain`: describe a call by flags; prints which backend serves it and why the others do not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from arch_caps import Layout, Op, PosEncoding, Request, target_of
from rocade import _dtypes, _request
from rocade._dispatch import Verdict, canonical, verdicts

_PAGED = frozenset((Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE, Op.CASCADE))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocade explain", usage="rocade explain --op OP [options]", description=__doc__
    )
    add = parser.add_argument
    add("--op", required=True, choices=[op.value for op in Op], metavar="OP", help=", ".join(Op))
    add("--target", help="ask about this target, such as sm_90, instead of this machine's CPU")
    add("--backend", default="auto", help="one backend instead of the order of preference")
    add("--dtype", default="fp16", help="of q and the output (default: fp16)")
    add("--kv-dtype", help="of the cache (default: as q)")
    add("--num-qo-heads", type=int, default=32)
    add("--num-kv-heads", type=int, default=8)
    add("--head-dim", type=int, default=128, help="of q and k")
    add("--head-dim-vo", type=int, help="of v and the output (default: as q)")
    add("--page-size", type=int, default=16, help="tokens a page, for paged operations")
    add("--kv-layout", default="NHD", choices=[layout.value for layout in Layout])
    add("--causal", action="store_true")
    add("--custom-mask", action="store_true")
    add("--window-left", type=int, default=-1)
    add("--logits-soft-cap", type=float, default=0.0)
    add("--pos-encoding-mode", default="NONE", choices=[mode.value for mode in PosEncoding])
    add("--num-levels", type=int, default=2, help="of a cascade")
    add("--graph", action="store_true", help="planned for graph capture")
    add("--fixed-split-size", type=int)
    add("--disable-split-kv", action="store_true")
    return parser


def _attention(op: Op, args: argparse.Namespace) -> Request:
    return _request.attention(
        op,
        num_qo_heads=args.num_qo_heads,
        num_kv_heads=args.num_kv_heads,
        head_dim_qk=args.head_dim,
        head_dim_vo=args.head_dim_vo,
        q_dtype=args.dtype,
        kv_dtype=args.kv_dtype,
        kv_layout=Layout(args.kv_layout),
        page_size=args.page_size if op in _PAGED else 0,
        causal=args.causal,
        custom_mask=args.custom_mask,
        pos_encoding_mode=args.pos_encoding_mode,
        window_left=args.window_left,
        logits_soft_cap=args.logits_soft_cap,
        num_levels=args.num_levels if op is Op.CASCADE else 1,
        graph=args.graph,
        fixed_split_size=args.fixed_split_size,
        disable_split_kv=args.disable_split_kv,
    )


def _build(args: argparse.Namespace) -> Request:
    """The request that the flags describe; ValueError as from the real call."""
    op = Op(args.op)
    if op.is_attention:
        return _attention(op, args)
    dtype = _dtypes.torch_dtype(_dtypes.dtype_of("--dtype", args.dtype))
    if op is not Op.APPEND_PAGED_KV_CACHE:
        return _request.states(op, dtype=dtype, num_heads=args.num_qo_heads, head_dim=args.head_dim)
    return _request.append(
        key_dtype=dtype,
        cache_dtype=_dtypes.torch_dtype(_dtypes.dtype_of("--kv-dtype", args.kv_dtype or args.dtype)),
        num_kv_heads=args.num_kv_heads,
        head_dim_qk=args.head_dim,
        head_dim_vo=args.head_dim_vo or args.head_dim,
        page_size=args.page_size,
        kv_layout=Layout(args.kv_layout),
    )


def _lines(asked: Sequence[Verdict]) -> list[str]:
    """One line for a backend that serves the call, else one for each of its reasons."""
    found = []
    for verdict in asked:
        said = [f"no: {reason}" for reason in verdict.reasons] or ["yes"]
        found += [f"  {verdict.backend:8}{text}" for text in said]
    return found


def main(argv: Sequence[str]) -> int:
    """Print the choice and all reasons; 0 if a backend serves the call, 1 if none does, 2 if malformed."""
    parser = _parser()
    args = parser.parse_args(argv)
    target = target_of(args.target or "cpu")
    try:
        asked = verdicts(_build(args), target, canonical(args.backend), here=args.target is None)
    except ValueError as error:
        parser.error(str(error))
    chosen = next((v.backend for v in asked if not v.reasons), None)
    answer = f"runs on backend {chosen}" if chosen else "is refused"
    print(f"{args.op} on {target} {answer}", *_lines(asked), sep="\n")
    return 0 if chosen else 1

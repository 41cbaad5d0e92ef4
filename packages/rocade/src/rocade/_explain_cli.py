"""`rocade explain`: describe a call by flags; prints which backend serves it and why the others do not."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from arch_caps import Layout, Op, PosEncoding
from rocade._explain import explain


def _words(values: Iterable[StrEnum]) -> list[str]:
    """As they are typed: argparse prints choices by `repr`, which of an enum is more than the word."""
    return [value.value for value in values]


# Facts of a request by the name that `rocade.explain` knows them by, with the type of their flag.
_FACTS: dict[str, Callable[[str], object]] = {
    "num_qo_heads": int,
    "num_kv_heads": int,
    "head_dim_qk": int,
    "head_dim_vo": int,
    "q_dtype": str,
    "kv_dtype": str,
    "o_dtype": str,
    "kv_layout": str,
    "page_size": int,
    "window_left": int,
    "logits_soft_cap": float,
    "pos_encoding_mode": str,
    "num_levels": int,
    "max_qo_len": int,
    "max_kv_len": int,
    "fixed_split_size": int,
}
_FLAGS = ("causal", "custom_mask", "graph", "disable_split_kv")
_STATE_FACTS: dict[str, Callable[[str], object]] = {"num_heads": int, "head_dim": int, "dtype": str}
_APPEND_FACTS: dict[str, Callable[[str], object]] = {"key_dtype": str, "cache_dtype": str}
_CHOICES: dict[str, Sequence[str]] = {"kv_layout": _words(Layout), "pos_encoding_mode": _words(PosEncoding)}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocade explain",
        usage="rocade explain --op OP [options]",
        description=__doc__,
        argument_default=argparse.SUPPRESS,
        epilog="What is left out is taken from a Llama shape: 32/8 heads, head dim 128, float16, page 16.",
    )
    parser.add_argument("--op", required=True, choices=_words(Op), metavar="OP", help=", ".join(Op))
    parser.add_argument("--target", help="ask about this target, such as sm_90, not this machine's CPU")
    parser.add_argument("--backend", help="one backend instead of the order of preference")
    attention = parser.add_argument_group("attention")
    for name in _FLAGS:
        attention.add_argument(_flag(name), action="store_true")
    for title, facts in (
        ("attention, values", _FACTS),
        ("merges and sums", _STATE_FACTS),
        ("appending to a cache", _APPEND_FACTS),
    ):
        group = parser.add_argument_group(title)
        for name, kind in facts.items():
            group.add_argument(_flag(name), type=kind, choices=_CHOICES.get(name))
    return parser


def main(argv: Sequence[str]) -> int:
    """Print the choice and all reasons; 0 if a backend serves the call, 1 if none does, 2 if malformed."""
    parser = _parser()
    facts = vars(parser.parse_args(argv))
    try:
        answer = explain(facts.pop("op"), **facts)
    except ValueError as error:
        parser.error(str(error))
    print(answer)
    return 0 if answer.backend else 1

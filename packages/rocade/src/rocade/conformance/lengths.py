"""Named lengths: how many queries and keys each request of a case has. Small, and full of edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Lengths(NamedTuple):
    """Query rows and keys of each request of one level."""

    qo: tuple[int, ...]
    kv: tuple[int, ...]


_PREFILL: dict[str, Callable[[int], Lengths]] = {
    "one": lambda _: Lengths((5,), (9,)),
    "ragged": lambda _: Lengths((1, 6, 3, 2), (13, 6, 37, 3)),
    "empty_requests": lambda _: Lengths((2, 0, 3, 0, 1), (5, 7, 0, 0, 2)),
    "empty_batch": lambda _: Lengths((), ()),
    "no_keys": lambda _: Lengths((2, 3), (0, 0)),
    "more_queries": lambda _: Lengths((5, 9, 3), (2, 8, 1)),
    "page_edge": lambda page: Lengths((2, 1, 3, 1), (page - 1, page, page + 1, 2 * page)),
    "decode_like": lambda _: Lengths((1, 1, 1, 1, 1), (1, 2, 19, 64, 33)),
    "long": lambda _: Lengths((3,), (270,)),
    "tall": lambda _: Lengths((40,), (70,)),
}

_SINGLE_PREFILL: dict[str, Lengths] = {
    "one": Lengths((1,), (1,)),
    "square": Lengths((7,), (7,)),
    "wide": Lengths((5,), (33,)),
    "one_row": Lengths((1,), (70,)),
    "more_queries": Lengths((9,), (4,)),
    "no_keys": Lengths((4,), (0,)),
    "no_queries": Lengths((0,), (5,)),
    "long": Lengths((3,), (270,)),
    "tall": Lengths((40,), (70,)),
}

_DECODE: dict[str, Callable[[int], tuple[int, ...]]] = {
    "one": lambda _: (17,),
    "ragged": lambda _: (4, 13, 37, 5),
    "empty_requests": lambda _: (5, 0, 7, 0),
    "empty_batch": lambda _: (),
    "all_empty": lambda _: (0, 0),
    "short": lambda _: (1, 2, 1),
    "page_edge": lambda page: (page - 1, page, page + 1, 2 * page),
    "long": lambda _: (270,),
    "many": lambda _: tuple(1 + 7 * i % 23 for i in range(24)),
}

_SINGLE_DECODE = {
    "one": 1,
    "two": 2,
    "few": 31,
    "page": 64,
    "edge": 65,
    "long": 270,
    "none": 0,
    "longer": 600,
}

VERY_LONG = "very_long"  # not among `names`: cases of equal terms alone have it
_VERY_LONG_KEYS = 8192

# Rows of each request, keys of its own suffix, and keys of a shared range (level, group) by a formula.
_CASCADE_ROWS: dict[str, tuple[int, ...]] = {
    "decode": (1, 1, 1, 1, 1),
    "prefill": (3, 1, 4, 2, 2),
    "empty_requests": (1, 0, 2, 0, 1),
    "empty_suffix": (1, 1, 1, 1, 1),
    "empty_prefix": (2, 1, 1, 1, 1),
    "more_queries": (4, 5, 3, 1, 2),
    "page_edge": (1, 2, 1, 1, 1),
    "forest": (1, 1, 2, 1, 1),
    "long": (1, 1, 1, 1, 1),
    "empty_batch": (),
}
_CASCADE_SUFFIX: dict[str, Callable[[int], tuple[int, ...]]] = {
    "decode": lambda _: (1, 9, 4, 17, 2),
    "prefill": lambda _: (3, 7, 4, 11, 2),
    "empty_requests": lambda _: (3, 4, 2, 0, 5),
    "empty_suffix": lambda _: (0, 3, 0, 0, 1),
    "empty_prefix": lambda _: (5, 0, 3, 1, 9),
    "more_queries": lambda _: (2, 0, 1, 1, 0),
    "page_edge": lambda page: (page, page + 1, max(page - 1, 0), 1, 2 * page),
    "forest": lambda _: (2, 5, 3, 1, 8),
    "long": lambda _: (2, 5, 3, 1, 8),
    "empty_batch": lambda _: (),
}
_GROUPS_OF_FIVE = {1: (5,), 2: (3, 2), 3: (1, 2, 2)}  # how the shared ranges split five requests


def _shared_len(profile: str, level: int, group: int, page: int) -> int:
    if profile == "empty_prefix" and level == 0:
        return 0
    if profile == "page_edge":
        return page * (1 + group % 2)
    if profile == "more_queries":
        return 1 + group
    return (230 if profile == "long" else 21) - 7 * level + group


def prefill(profile: str, page_size: int) -> Lengths:
    """Lengths of a batch prefill."""
    return _PREFILL[profile](page_size or 8)


def decode(profile: str, page_size: int, q_len: int) -> Lengths:
    """Lengths of a batch decode with `q_len` query tokens a request, whose keys a request has to hold."""
    kv = tuple(max(n, q_len) if n else 0 for n in _DECODE[profile](page_size))
    return Lengths((q_len,) * len(kv), kv)


def single_prefill(profile: str) -> Lengths:
    """Lengths of a single prefill."""
    return _SINGLE_PREFILL[profile]


def single_decode(profile: str) -> Lengths:
    """Lengths of a single decode."""
    return Lengths((1,), (_SINGLE_DECODE[profile],))


def very_long(rows: int) -> Lengths:
    """Lengths of one request with so many keys that rounding would pile up in a plain running sum."""
    return Lengths((rows,), (_VERY_LONG_KEYS,))


def cascade(profile: str, num_levels: int, page_size: int) -> list[Lengths]:
    """Lengths of every level, the widest shared one first. A forest has two roots."""
    rows = _CASCADE_ROWS[profile]
    levels = []
    for level in range(num_levels - 1):
        groups = _GROUPS_OF_FIVE[min(level + (2 if profile == "forest" else 1), 3)] if rows else ()
        qo, first = [], 0
        for size in groups:
            qo.append(sum(rows[first : first + size]))
            first += size
        levels.append(
            Lengths(tuple(qo), tuple(_shared_len(profile, level, g, page_size) for g in range(len(groups))))
        )
    return [*levels, Lengths(rows, _CASCADE_SUFFIX[profile](page_size))]


def names(table: str) -> tuple[str, ...]:
    """The names that one of the functions above understands."""
    tables: dict[str, Iterable[str]] = {
        "prefill": _PREFILL,
        "single_prefill": _SINGLE_PREFILL,
        "decode": _DECODE,
        "single_decode": _SINGLE_DECODE,
        "cascade": _CASCADE_ROWS,
    }
    return tuple(tables[table])

"""Kernel arguments as words of the command line."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocade_emulator._sparse import SparseBuffer

HELP = """\
kernel arguments, one word each, in the kernel's order:
  i8:N i16:N i32:N i64:N   an integer (u8 to u64 without sign)
  f16:X f32:X f64:X        a float
  null                     a null pointer
  zeros:BYTES              a buffer of zeros
  undefined:BYTES          a buffer that the kernel must write before it reads it
  random-f32:COUNT         a buffer of normally distributed numbers (also -f16, -bf16), the same in every run
  file:PATH                a buffer with the content of a file
"""

_NUMBERS = {
    **{f"{sign}{bits}": form for bits, form in ((8, "b"), (16, "h"), (32, "i"), (64, "q")) for sign in "i"},
    **{f"u{bits}": form for bits, form in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))},
    "f16": "e",
    "f32": "f",
    "f64": "d",
}


class WordError(ValueError):
    """A word is no kernel argument."""


@dataclass(frozen=True, slots=True)
class Word:
    """A parsed argument: what is given to the kernel, and whether a buffer starts undefined."""

    value: Any
    undefined: bool = False


def parse(word: str, seed: int = 0) -> Word:
    """One argument.

    Raises:
        WordError: it has none of the forms above.
        OSError: its file cannot be read.
    """
    kind, _, text = word.partition(":")
    try:
        if word == "null":
            return Word(None)
        if kind in _NUMBERS:
            return Word(_number(kind, text))
        if kind in ("zeros", "undefined"):
            return Word(SparseBuffer(int(text, 0)), kind == "undefined")
        if kind in _RANDOM:
            return Word(_filled(_RANDOM[kind](random.Random(seed), int(text, 0))))
    except (ValueError, struct.error, OverflowError) as error:
        raise WordError(f"{word!r}: {error}") from error
    if kind == "file":
        return Word(_filled(Path(text).read_bytes()))
    raise WordError(f"{word!r} is no kernel argument\n{HELP}")


def _number(kind: str, text: str) -> bytes:
    value = float(text) if kind.startswith("f") else int(text, 0)
    return struct.pack(f"<{_NUMBERS[kind]}", value)


def _filled(content: bytes) -> SparseBuffer:
    buffer = SparseBuffer(len(content))
    buffer.write(content)
    return buffer


def _floats(form: str) -> Callable[[random.Random, int], bytes]:
    return lambda rng, count: struct.pack(f"<{count}{form}", *(rng.gauss(0, 1) for _ in range(count)))


def _bfloats(rng: random.Random, count: int) -> bytes:
    """The upper halves of floats: rounded towards zero, which random numbers do not mind."""
    return b"".join(struct.pack("<f", rng.gauss(0, 1))[2:] for _ in range(count))


_RANDOM: dict[str, Callable[[random.Random, int], bytes]] = {
    "random-f32": _floats("f"),
    "random-f16": _floats("e"),
    "random-bf16": _bfloats,
}

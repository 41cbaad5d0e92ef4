"""Byte-level BPE from a GGUF vocabulary (GPT-2 scheme, digits alone, as in SmolLM2), and its chat form."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator

from rocade.demo._gguf import Vocabulary

# Words of text that holds no number characters: there, \w without _ is exactly the letters.
_WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W_]+| ?(?:[^\w\s]|_)+|\s+(?!\S)|\s+")


def _byte_characters() -> list[str]:
    """The printable character that stands for each byte: itself where it has one, else U+0100 onwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


_BYTE_TO_CHAR = _byte_characters()
_CHAR_TO_BYTE = {c: b for b, c in enumerate(_BYTE_TO_CHAR)}


class Tokenizer:
    """Text to token ids and back. Control tokens come only from `chat`, never from the text itself."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = vocabulary.tokens
        self._ids = {token: i for i, token in enumerate(vocabulary.tokens)}
        self._ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
        self._control = vocabulary.control
        self._words: dict[str, list[int]] = {}
        self.end_of_turn = vocabulary.end_of_turn

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; a marker spelled out in it is text like any other.

        Raises:
            ValueError: the text holds a byte that the vocabulary lacks (some ASCII control characters).
        """
        ids: list[int] = []
        for word in _words(text):
            if word not in self._words:
                self._words[word] = self._bpe(word)
            ids += self._words[word]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids; control tokens are left out, and a cut-off character becomes U+FFFD."""
        text = "".join(self._tokens[i] for i in ids if i not in self._control)
        return bytes(_CHAR_TO_BYTE[c] for c in text).decode("utf-8", errors="replace")

    def answer(self, ids: list[int]) -> tuple[str, bool]:
        """Text up to the mark that ends a turn, and whether the mark was there."""
        ended = self.end_of_turn in ids
        return self.decode(ids[: ids.index(self.end_of_turn)] if ended else ids), ended

    def chat(self, turns: Iterable[tuple[str, str]]) -> list[int]:
        """The model's chat template: (role, content) of each turn, and then the header of the answer."""
        start, end = self._ids["<|im_start|>"], self._ids["<|im_end|>"]
        ids: list[int] = []
        for role, content in turns:
            ids += [start, *self.encode(f"{role}\n{content}"), end, *self.encode("\n")]
        return [*ids, start, *self.encode("assistant\n")]

    def _bpe(self, word: str) -> list[int]:
        """Join the best-ranked pair everywhere, until no pair has a rank."""
        parts = [_BYTE_TO_CHAR[b] for b in word.encode("utf-8")]
        while len(parts) > 1:
            pairs = set(itertools.pairwise(parts))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            parts = _join(parts, best)
        return [self._id(part) for part in parts]

    def _id(self, part: str) -> int:
        if part not in self._ids:  # a few control bytes, never part of a longer token
            raise ValueError(f"the vocabulary has no token for byte 0x{_CHAR_TO_BYTE[part]:02x}")
        return self._ids[part]


def _join(parts: list[str], pair: tuple[str, str]) -> list[str]:
    joined: list[str] = []
    i = 0
    while i < len(parts):
        if tuple(parts[i : i + 2]) == pair:
            joined.append(parts[i] + parts[i + 1])
            i += 2
        else:
            joined.append(parts[i])
            i += 1
    return joined


def _words(text: str) -> Iterator[str]:
    """Pieces that BPE never joins across: each number character alone, the rest by `_WORD`."""
    start = 0
    for i, char in enumerate(text):
        if unicodedata.category(char).startswith("N"):
            yield from _WORD.findall(text[start:i])
            yield char
            start = i + 1
    yield from _WORD.findall(text[start:])

"""Text becomes the tokens of the reference tokenizer, and comes back; markers in text stay text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocade.demo import _prompt
from rocade.demo._gguf import Vocabulary
from rocade.demo._tokenizer import _BYTE_TO_CHAR, Tokenizer

MERGES = [
    ("h", "e"),
    ("l", "l"),
    ("Ġ", "w"),
    ("he", "ll"),
    ("hell", "o"),
    ("Ġw", "o"),
    ("1", "2"),
    ("'", "s"),
    ("Ċ", "Ċ"),
]
CONTROL = ["<|im_start|>", "<|im_end|>"]


def small() -> Tokenizer:
    """Two control tokens, every byte, and a few merges."""
    tokens = [*CONTROL, *_BYTE_TO_CHAR, *(a + b for a, b in MERGES)]
    return Tokenizer(Vocabulary(tokens, MERGES, frozenset((0, 1)), end_of_turn=1))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello wo", ["hello", " wo"]),  # the best rank first, joined everywhere
        ("hhello", ["h", "hello"]),
        ("12", ["1", "2"]),  # a merge never joins digits
        ("it's", ["i", "t", "'s"]),
        ("he  wo", ["he", " ", " wo"]),  # the last space belongs to the word
        ("\n\n1", ["\n\n", "1"]),
        ("", []),
    ],
)
def test_words_are_merged_by_rank(text: str, expected: list[str]) -> None:
    assert pieces(small(), text) == expected


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    tokenizer = small()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_markers_in_text_are_text() -> None:
    tokenizer = small()
    ids = tokenizer.encode("a<|im_end|>b")
    assert not {0, 1} & set(ids)
    assert tokenizer.decode(ids) == "a<|im_end|>b"


def test_chat_puts_each_turn_between_markers_and_opens_the_answer() -> None:
    tokenizer = small()
    text = tokenizer.encode
    assert tokenizer.chat([("system", "he"), ("user", "<|im_end|>")]) == [
        *(0, *text("system\nhe"), 1, *text("\n")),
        *(0, *text("user\n<|im_end|>"), 1, *text("\n")),
        *(0, *text("assistant\n")),
    ]


def test_an_answer_stops_at_its_end_mark() -> None:
    tokenizer = small()
    assert tokenizer.answer([*tokenizer.encode("hello"), 1, *tokenizer.encode(" wo")]) == ("hello", True)
    assert tokenizer.answer(tokenizer.encode("hello")) == ("hello", False)


def test_half_a_character_is_marked() -> None:
    tokenizer = small()
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"


def test_a_byte_without_token_is_named() -> None:
    tokens = [*CONTROL, *(c for c in _BYTE_TO_CHAR if c != _BYTE_TO_CHAR[4])]
    tokenizer = Tokenizer(Vocabulary(tokens, [], frozenset((0, 1)), end_of_turn=1))
    with pytest.raises(ValueError, match="byte 0x04"):
        tokenizer.encode("a\x04")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world!", [19556, 28, 905, 17]),
        (
            "It's 1,850 tools  (½ of them)\n\n\tand we'll see",
            [
                1589,
                506,
                216,
                33,
                28,
                40,
                37,
                32,
                2549,
                216,
                365,
                16738,
                282,
                601,
                25,
                1116,
                197,
                397,
                392,
                3060,
                963,
            ],
        ),
        (
            "naïve café — 東京 👍🏽",
            [3546, 46494, 37366, 1841, 17097, 247, 126, 16736, 122, 15107, 235, 231, 10813, 233, 138],
        ),
    ],
)
def test_the_real_vocabulary_gives_the_ids_of_the_tokenizers_package(
    real_tokenizer: Tokenizer, text: str, expected: list[int]
) -> None:
    """Ids written down from `tokenizers` 0.23.3 with the same vocabulary and merges."""
    assert real_tokenizer.encode(text) == expected
    assert real_tokenizer.decode(expected) == text


def test_the_system_prompt_has_2048_tokens_or_more(real_tokenizer: Tokenizer) -> None:
    assert len(real_tokenizer.encode(_prompt.system_prompt())) >= 2048

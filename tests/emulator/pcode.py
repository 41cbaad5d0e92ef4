"""Expressions of the pseudo-code that AMD publishes for its instructions: the oracle of the opcode tests."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from tests.emulator.pcode_functions import FUNCTIONS, convert
from tests.emulator.pcode_operations import (
    Memory,
    PcodeError,
    binary,
    cast,
    concatenated,
    literal,
    negated,
    number,
    special,
    type_of,
)
from tests.emulator.pcode_values import Number, V, unsigned

TOKEN = re.compile(
    r"(?P<cast>\d+'(?:BF|[UIFB])\b)|(?P<sized>-?\d+'-?[0-9][0-9a-fA-Fx.]*[UIF]?)"
    r"|(?P<number>0x[0-9a-fA-F]+[UL]*|\d+\.\d+F?|\d+(?:ULL|LL|U|L|F)?\b)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>\+:|<<|>>|<>|<=|>=|==|!=|&&|\|\||\*\*|\+=|-=|[-+*/%&|^~!<>=?:;,.()\[\]{}])"
)


def tokens_of(text: str) -> list[str]:
    """Words of one statement."""
    out, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = TOKEN.match(text, at)
        if match is None:
            raise PcodeError(f"at {text[at : at + 20]!r}")
        out.append(match[0])
        at = match.end()
    return out


Expr = Callable[["Machine"], V]


class Machine:
    """State that a program reads and writes: named values, and registers of all lanes where needed."""

    def __init__(self, values: dict[str, V], target: str, lanes: Number = None) -> None:
        self.values = values
        self.target = target
        self.lanes = lanes

    def get(self, name: str) -> V:
        """A variable; one never written is zero."""
        return self.values.get(name, V("b", 64, 0))


LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="), ("<<", ">>"),
          ("+", "-"), ("*", "/", "%"), ("**",))  # fmt: skip


class Parser:
    """Turns the words of an expression into a closure."""

    def __init__(self, words: list[str], functions: dict[str, Any]) -> None:
        self.words, self.at, self.functions = words, 0, functions

    def peek(self) -> str:
        """The next word, or nothing."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, wanted: str = "") -> str:
        """The next word, which must be `wanted` if that is given."""
        word = self.peek()
        if wanted and word != wanted:
            raise PcodeError(f"{wanted!r} expected, {word!r} found in {' '.join(self.words)}")
        self.at += 1
        return word

    def ternary(self) -> Expr:
        """Condition ? a : b."""
        condition = self.level(0)
        if self.peek() != "?":
            return condition
        self.take()
        a = self.ternary()
        self.take(":")
        b = self.ternary()
        return lambda m: a(m) if condition(m).bits else b(m)

    def level(self, depth: int) -> Expr:
        """Left-associative operators of one precedence."""
        if depth == len(LEVELS):
            return self.unary()
        left = self.level(depth + 1)
        while self.peek() in LEVELS[depth]:
            left = self._joined(self.take(), left, self.level(depth + 1))
        return left

    @staticmethod
    def _joined(op: str, a: Expr, b: Expr) -> Expr:
        return lambda m: binary(op, a(m), b(m))

    def unary(self) -> Expr:
        """Sign, complement, negation."""
        op = self.peek()
        if op in ("-", "+", "~", "!"):
            self.take()
            inner = self.unary()
            return (lambda m: inner(m)) if op == "+" else (lambda m: negated(op, inner(m)))
        return self.postfix(self.primary())

    def primary(self) -> Expr:
        """A constant, variable, call, cast, concatenation or bracket."""
        word = self.take()
        if word == "(":
            inner = self.ternary()
            self.take(")")
            return inner
        if word == "{":
            parts = self.arguments("}")
            return lambda m: concatenated([p(m) for p in parts])
        if re.fullmatch(r"\d+'(BF|[UIFB])", word):
            return self.cast_expression(word)
        if word[0].isdigit() or (word[0] == "-" and len(word) > 1):
            value = literal(word)
            return lambda m: value
        if self.peek() == "(" and word not in ("then",):
            self.take()
            return self.call(word, self.arguments(")"))
        return lambda m: m.get(word)

    def cast_expression(self, word: str) -> Expr:
        """`32'U ( expression )`."""
        width, kind = word.split("'")
        self.take("(")
        inner = self.ternary()
        self.take(")")
        letter = "g" if kind == "BF" else kind.lower()
        return lambda m: cast(letter, int(width), inner(m))

    def arguments(self, end: str) -> list[Expr]:
        """Expressions up to a closing bracket."""
        found = []
        while self.peek() != end:
            found.append(self.ternary())
            if self.peek() == ",":
                self.take()
        self.take(end)
        return found

    def call(self, name: str, arguments: list[Expr]) -> Expr:
        """A function of the pseudo-code, a local lambda, or another instruction."""
        functions = self.functions

        def run(m: Machine) -> V:
            values = [a(m) for a in arguments]
            if name in functions:
                return functions[name](m, *values)
            if name in FUNCTIONS:
                return FUNCTIONS[name](m, *values)
            if "_to_" in name:
                return convert(name, m.target, *values)
            raise PcodeError(f"function {name}")

        return run

    def postfix(self, inner: Expr) -> Expr:
        """`.u32`, `[31 : 0]`, `[i]`, `[a +: 4]`."""
        while self.peek() in (".", "["):
            if self.take() == ".":
                inner = self._typed(inner, self.take())
                continue
            inner = self._sliced(inner, *self.bounds())
        return inner

    def bounds(self) -> tuple[Expr, Expr | None, bool]:
        """The inside of a subscript: (first, last or none, whether last is a length)."""
        first = self.level(0) if self.peek() != "-" else self.ternary()
        if self.peek() == "?":
            self.take()
            a, _, b = self.ternary(), self.take(":"), self.ternary()
            condition = first
            first = lambda m: a(m) if condition(m).bits else b(m)  # noqa: E731
        last, length = None, False
        if self.peek() in (":", "+:"):
            length = self.take() == "+:"
            last = self.ternary()
        self.take("]")
        return first, last, length

    @staticmethod
    def _typed(inner: Expr, name: str) -> Expr:
        kind, width = type_of(name)

        def run(m: Machine) -> V:
            v = inner(m)
            if isinstance(v, list):
                raise PcodeError("type of an array")
            if v.kind == "special":
                return special(v, kind, width)
            wide = number(v) if v.kind == "i" else v.bits
            return V(kind, width, unsigned(wide, width))

        return run

    @staticmethod
    def _sliced(inner: Expr, first: Expr, last: Expr | None, length: bool) -> Expr:
        def run(m: Machine) -> Number:
            v = inner(m)
            a = number(first(m))
            if isinstance(v, list):
                return v[a]
            if isinstance(v, Memory):
                return v.read(a)
            if last is None:
                return V("u", 1, v.bits >> a & 1)
            b = number(last(m))
            high, low = (a + b - 1, a) if length else (a, b)
            if high < low:  # bits in reverse order
                return V(
                    "u", low - high + 1, sum((v.bits >> k & 1) << (low - k) for k in range(high, low + 1))
                )
            return V("u", high - low + 1, v.bits >> low & ((1 << (high - low + 1)) - 1))

        return run


def _pieces(text: str) -> list[str]:
    """Lines without comments and semicolons; the bracket that ends a local function stands alone."""
    out = []
    for raw in text.split("\n"):
        line = raw.partition("//")[0].strip().rstrip(";").strip()
        closes = line.endswith(")") and line.count(")") > line.count("(")
        pieces = [line[:-1], ")"] if closes and line != ")" else [line]
        out += [piece for piece in pieces if piece]
    return out


@functools.cache
def lines_of(text: str) -> tuple[str, ...]:
    """Statements, without comments and with split lines joined."""
    out: list[str] = []
    text = re.sub(r"\b(WAVE_MODE|INST)\.", r"\1_", text)
    text = text.replace("== +0.0)", "== POSITIVE_ZERO)").replace("== -0.0)", "== NEGATIVE_ZERO)")
    for line in _pieces(text):
        if out and "lambda" not in out[-1] and out[-1].count("(") > out[-1].count(")"):
            out[-1] += " " + line
        else:
            out.append(line)
    return tuple(out)

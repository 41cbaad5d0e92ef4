"""A small interpreter of the pseudo-code that AMD publishes for its instructions: the oracle of the per-opcode tests."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from tests.emulator.pcode_functions import FUNCTIONS, convert
from tests.emulator.pcode_values import IEEE, V, bits_of, bits_of_brain, brain_float, float_of, is_nan, signed, unsigned

TOKEN = re.compile(
    r"(?P<cast>\d+'(?:BF|[UIFB])\b)|(?P<sized>-?\d+'-?[0-9][0-9a-fA-Fx.]*[UIF]?)"
    r"|(?P<number>0x[0-9a-fA-F]+[UL]*|\d+\.\d+F?|\d+(?:ULL|LL|U|L|F)?\b)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>\+:|<<|>>|<>|<=|>=|==|!=|&&|\|\||\*\*|\+=|-=|[-+*/%&|^~!<>=?:;,.()\[\]{}])"
)
TYPE = re.compile(r"(bf|fp|[uifb])(\d+)$")
KINDS = {"u": "u", "i": "i", "f": "f", "b": "b"}


class PcodeError(Exception):
    """Pseudo-code that this interpreter does not understand."""


def type_of(name: str) -> tuple[str, int]:
    """Kind and width of a type suffix like `u32`, `bf16`, `fp8`."""
    match = TYPE.match(name)
    if match is None:
        raise PcodeError(f"type {name}")
    prefix, width = match[1], int(match[2])
    if prefix == "bf":
        return ("g", 16) if width == 16 else ("q", width)
    return ("p", width) if prefix == "fp" else (KINDS[prefix], width)


def number(v: V) -> Any:
    """The number that a value stands for."""
    if v.kind == "i":
        return signed(v.bits, v.width)
    if v.kind == "f":
        return float_of(v.bits, v.width)
    if v.kind == "g":
        return brain_float(v.bits)
    if v.kind == "special":
        return float("nan") if v.width else float("inf")
    return v.bits


def make(kind: str, width: int, x: Any) -> V:
    """A value of a type from a number."""
    if kind == "f":
        return V("f", width, bits_of(float(x), width))
    if kind == "g":
        return V("g", 16, bits_of_brain(float(x)))
    return V(kind, width, int(x) if kind == "n" else unsigned(int(x), width))


def nan_in(width: int, v: V) -> int:
    """A NaN in another width, still quiet or signalling as it was."""
    mantissa, _, exponents = IEEE[width]
    top = ((1 << exponents) - 1) << mantissa
    payload = v.bits >> (IEEE[v.width][0] - 1) & 1
    return (v.bits >> (v.width - 1)) << (width - 1) | top | (1 << (mantissa - 1) if payload else 1)


def cast(kind: str, width: int, v: V) -> V:
    """`32'U(v)`: converts a number, or takes bits as they are."""
    if kind == "f" and v.kind == "f" and is_nan(v.bits, v.width):
        return V("f", width, nan_in(width, v))
    if kind in "fg":
        return V(kind, width, unsigned(v.bits, width)) if v.kind == "b" else make(kind, width, number(v))
    if v.kind in "fg":
        return V(kind, width, unsigned(v.bits, width))
    return V(kind, width, unsigned(number(v), width))


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


def literal(word: str) -> V:
    """A constant: `16'0.5`, `1'1U`, `0x10ULL`, `2.0F`, `31`."""
    if "'" in word:
        width, body = word.split("'")
        width = int(width)
        if "." in body:
            x = float(body)
            return make("f", abs(width), -x if width < 0 else x)
        if body.startswith("0x"):
            return V("b", width, int(body, 16))
        return make("u" if body.endswith("U") else "i", width, int(body.rstrip("UI"), 0))
    if word.startswith("0x"):
        long, is_u = "L" in word, "U" in word
        value = int(word.rstrip("UL"), 16)
        return V("u" if is_u else "b", 64 if long or value >> 32 else 32, value)
    if "." in word:
        return make("f", 32 if word.endswith("F") else 64, float(word.rstrip("F")))
    if word.endswith("F"):
        return make("f", 32, float(word[:-1]))
    value = int(word.rstrip("UL"))
    if "U" in word or "L" in word:
        return make("u" if "U" in word else "i", 64 if "LL" in word else 32, value)
    return V("n", 0, value)


Expr = Callable[["Machine"], V]


class Memory:
    """Bytes that MEM[address] reads and writes."""

    def __init__(self, data: bytearray) -> None:
        self.data = data

    def read(self, address: int) -> V:
        """Sixteen bytes, of which a type suffix takes what it needs."""
        return V("b", 128, int.from_bytes(self.data[address : address + 16], "little"))

    def write(self, address: int, v: V) -> None:
        """As many bytes as the value is wide."""
        self.data[address : address + v.width // 8] = v.bits.to_bytes(v.width // 8, "little")


class Machine:
    """State that a program reads and writes: named values, and registers of all lanes for those that need them."""

    def __init__(self, values: dict[str, V], target: str, lanes: Any = None) -> None:
        self.values = values
        self.target = target
        self.lanes = lanes

    def get(self, name: str) -> V:
        """A variable; one never written is zero."""
        return self.values.get(name, V("b", 64, 0))


LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="), ("<<", ">>"),
          ("+", "-"), ("*", "/", "%"), ("**",))  # fmt: skip


def compare(op: str, x: Any, y: Any) -> bool:
    """One comparison of numbers, NaN as IEEE has it."""
    return {
        "==": x == y,
        "!=": x != y,
        "<>": x < y or x > y,
        "<": x < y,
        "<=": x <= y,
        ">": x > y,
        ">=": x >= y,
    }[op]


def float_binary(op: str, x: float, y: float) -> float:
    """One float operation in f64, which is exact enough to round once to f32 or f16."""
    import numpy as np

    with np.errstate(all="ignore"):
        a, b = np.float64(x), np.float64(y)
        return float({"+": a + b, "-": a - b, "*": a * b, "/": a / b, "**": a**b}[op])


def int_binary(op: str, x: int, y: int) -> int:
    """One integer operation without a width."""
    match op:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "<<":
            return x << y
        case ">>":
            return x >> y
        case "&":
            return x & y
        case "|":
            return x | y
        case "^":
            return x ^ y
    raise PcodeError(f"operator {op}")


def binary(op: str, a: V, b: V) -> V:
    """One operation on typed values."""
    if op in ("==", "!=", "<>", "<", "<=", ">", ">="):
        if b.kind == "D":  # "== DENORM" asks for a class, not for equality
            return V("u", 1, int(FUNCTIONS["isDENORM"](None, a).bits))
        if b.kind == "Z":  # a zero of one sign
            return V("u", 1, int(unsigned(a.bits, a.width - 1) == 0 and a.bits >> (a.width - 1) == b.bits))
        return V("u", 1, int(compare(op, number(a), number(b))))
    if op in ("&&", "||"):
        x, y = bool(a.bits), bool(b.bits)
        return V("u", 1, int(x and y if op == "&&" else x or y))
    if a.kind in "fg" or b.kind in "fg":
        first = a if a.kind in "fg" else b
        return make(first.kind, first.width, float_binary(op, number(a), number(b)))
    if a.kind == "n" and b.kind == "n":
        return V("n", 0, int_binary(op, a.bits, b.bits))
    shift = op in ("<<", ">>")
    model = a if shift and a.kind != "n" else b if a.kind == "n" else a
    width = model.width if shift or b.kind == "n" or a.kind == "n" else max(a.width, b.width)
    return V(model.kind, width, unsigned(int_binary(op, number(a), number(b)), width))


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
        """condition ? a : b."""
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
        def run(m: Machine) -> Any:
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
                return V("u", low - high + 1, sum((v.bits >> k & 1) << (low - k) for k in range(high, low + 1)))
            return V("u", high - low + 1, v.bits >> low & ((1 << (high - low + 1)) - 1))

        return run


def special(v: V, kind: str, width: int) -> V:
    """INF.f16, NAN.f32, DENORM.f32."""
    if v.width == 2:
        return V("D", width, 0)
    return make(kind, width, float("inf") if v.width == 0 else float("nan"))


def negated(op: str, v: V) -> V:
    """`-v`, `~v`, `!v`."""
    if op == "!":
        return V("u", 1, int(not v.bits))
    if op == "~":
        return V(v.kind, v.width, ~v.bits) if v.kind == "n" else V(v.kind, v.width, unsigned(~v.bits, v.width))
    if v.kind == "special":
        return make("f", 64, float("-inf"))
    if v.kind in "fg":
        return V(v.kind, v.width, v.bits ^ 1 << (v.width - 1))
    return V("n", 0, -v.bits) if v.kind == "n" else V(v.kind, v.width, unsigned(-v.bits, v.width))


def concatenated(parts: list[V]) -> V:
    """`{ high, low }`."""
    bits = width = 0
    for part in parts:
        bits = bits << part.width | unsigned(part.bits, part.width)
        width += part.width
    return V("b", width, bits)


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

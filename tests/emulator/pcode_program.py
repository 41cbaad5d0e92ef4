"""Whole pseudo-code programs: statements compiled once, then run on the values of one lane."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tests.emulator.pcode import Machine, Parser, lines_of, tokens_of
from tests.emulator.pcode_operations import PcodeError, binary, cast, make, number, type_of
from tests.emulator.pcode_values import Number, V, is_nan, unsigned

Statement = Callable[[Machine], str]  # returns "" or "break" or "return"
CONSTANTS = {
    "INF": V("special", 0, 0),
    "NAN": V("special", 1, 0),
    "DENORM": V("special", 2, 0),
    "PI": V("f", 64, 0x400921FB54442D18),
    "POSITIVE_ZERO": V("Z", 64, 0),
    "NEGATIVE_ZERO": V("Z", 64, 1),
    **{
        name: V("n", 0, code)
        for code, name in enumerate(["BYTE0", "BYTE1", "BYTE2", "BYTE3", "WORD0", "WORD1", "DWORD"])
    },
    "ROUND_NEAREST_EVEN": V("n", 0, 0),
    "ROUND_TOWARD_ZERO": V("n", 0, 3),
    "ROUND_MODE": V("n", 0, 0),
    "SDWA_SRC0_SEL": V("n", 0, 6),
}


class Compiler:
    """Compiles the lines of one program."""

    def __init__(self, lines: tuple[str, ...], functions: dict[str, Any]) -> None:
        self.lines, self.at, self.functions = lines, 0, functions

    def block(self, *ends: str) -> list[Statement]:
        """Statements up to a line that starts with one of `ends`, or to the end."""
        found: list[Statement] = []
        while self.at < len(self.lines):
            words = tokens_of(self.lines[self.at])
            if words[0] in ends:
                return found
            self.at += 1
            found.append(self.statement(words))
        if ends and ends != ("",):
            raise PcodeError(f"no {ends}")
        return found

    def statement(self, words: list[str]) -> Statement:
        """One statement; the first word says which."""
        match words[0]:
            case "if":
                return self.conditional(words)
            case "for":
                return self.loop(words)
            case "declare":
                return self.declaration(words)
            case "break":
                return lambda m: "break"
            case "return":
                return self.returning(words[1:])
        if "lambda" in words[:3]:
            return self.local_function(words)
        return self.assignment(words)

    def expression(self, words: list[str]) -> Callable[[Machine], Any]:
        """A whole list of words as one expression."""
        parser = Parser(words, self.functions)
        found = parser.ternary()
        if parser.peek():
            raise PcodeError(f"{parser.peek()!r} left in {' '.join(words)}")
        return found

    def conditional(self, words: list[str]) -> Statement:
        """If / elsif / else / endif."""
        arms: list[tuple[Callable[[Machine], Any] | None, list[Statement]]] = []
        while True:
            condition = self.expression(words[1:-1]) if words[0] != "else" else None
            arms.append((condition, self.block("elsif", "else", "endif")))
            words = tokens_of(self.lines[self.at])
            self.at += 1
            if words[0] == "endif":
                break

        def run(m: Machine) -> str:
            for condition, body in arms:
                if condition is None or condition(m).bits:
                    return execute(body, m)
            return ""

        return run

    def loop(self, words: list[str]) -> Statement:
        """For name in first : last do."""
        name, colon = words[1], words.index(":")
        first, last = self.expression(words[3:colon]), self.expression(words[colon + 1 : -1])
        body = self.block("endfor")
        self.at += 1

        def run(m: Machine) -> str:
            a = first(m)
            for k in range(number(a), number(last(m)) + 1):
                m.values[name] = V(a.kind, a.width, k)
                if (state := execute(body, m)) == "return":
                    return state
                if state:
                    break
            return ""

        return run

    def declaration(self, words: list[str]) -> Statement:
        """Declare name : 32'B, or an array of such."""
        name = words[1]
        if "[" in words:
            count = int(words[words.index("[") + 1])

            def array(m: Machine) -> str:
                m.values.setdefault(name, [V("b", 64, 0)] * count)  # type: ignore[arg-type]
                return ""

            return array
        width = int(words[3].split("'")[0])

        def scalar(m: Machine) -> str:
            m.values[name] = V("b", width, 0)
            return ""

        return scalar

    def returning(self, words: list[str]) -> Statement:
        """Return expression."""
        value = self.expression(words)

        def run(m: Machine) -> str:
            m.values["return"] = value(m)
            return "return"

        return run

    def local_function(self, words: list[str]) -> Statement:
        """Name = lambda(arguments) ( ... )."""
        name = words[0]
        close = words.index(")")
        arguments = [w for w in words[4:close] if w != ","]
        inner: list[str] = []
        while self.lines[self.at] not in (")", ");"):
            inner.append(self.lines[self.at])
            self.at += 1
        self.at += 1
        if len(inner) == 1:
            inner = ["return " + inner[0]]
        body = Compiler(tuple(inner), self.functions).block()

        def call(m: Machine, *values: V) -> V:
            local = Machine(dict(zip(arguments, values, strict=True)), m.target)
            local.values.update(CONSTANTS)
            execute(body, local)
            return local.values["return"]

        self.functions[name] = call
        return lambda m: ""

    def assignment(self, words: list[str]) -> Statement:
        """Target = expression, += and -=; several targets may be chained."""
        depth, operators = 0, []
        for k, word in enumerate(words):
            depth += (word in "([{") - (word in ")]}")
            if depth == 0 and word in ("=", "+=", "-="):
                operators.append(k)
        if not operators:
            return lambda m: ""  # an expression alone does nothing
        value = self.expression(words[operators[-1] + 1 :])
        starts = [0, *(k + 1 for k in operators[:-1])]
        targets = [target_of(words[a:b], self) for a, b in zip(starts, operators, strict=True)]
        operator = words[operators[-1]]
        if operator != "=":
            old = self.expression(words[: operators[-1]])
            right = value
            value = lambda m: binary(operator[0], old(m), right(m))  # noqa: E731

        def run(m: Machine) -> str:
            result = value(m)
            for store in targets:
                store(m, result)
            return ""

        return run


def target_of(words: list[str], compiler: Compiler) -> Callable[[Machine, V], None]:
    """What stores into `name`, `name.u32`, `name[3]`, `name[15 : 0].f16`, `name.u64[lane]`, `{ a, b }`."""
    if words[0] == "{":
        comma = words.index(",")
        high, low = target_of(words[1:comma], compiler), target_of(words[comma + 1 : -1], compiler)
        width = type_of(words[-2])[1]
        return lambda m, v: (
            low(m, V("b", width, unsigned(v.bits, width))),
            high(m, V("b", 1, v.bits >> width & 1)),
            None,
        )[2]
    name, accessors, at = words[0], [], 1
    while at < len(words):
        if words[at] == ".":
            if not words[at + 1].isidentifier() or not any(c.isdigit() for c in words[at + 1]):
                return target_of([name + "." + words[at + 1], *words[at + 2 :]], compiler)
            accessors.append(type_of(words[at + 1]))
            at += 2
        else:
            parser = Parser(words[at + 1 :], compiler.functions)
            accessors.append(parser.bounds())
            at += 1 + parser.at
    return functools.partial(_store, name, accessors)


def _store(name: str, accessors: list[Any], m: Machine, v: V) -> None:
    if v.kind == "special":
        v = make("f", 64, number(v))
    subscripts = [a for a in accessors if len(a) == 3]
    types = [a for a in accessors if len(a) == 2]
    if types:
        kind, width = types[-1]
        if v.kind != kind and v.kind in "fgn":
            v = (
                cast(kind, width, v)
                if v.kind != "f" or kind in "fg"
                else V(kind, width, unsigned(v.bits, width))
            )
        v = V(kind, width, unsigned(v.bits if v.kind != "i" else number(v), width))
    if name == "MEM":
        return m.values["MEM"].write(number(subscripts[0][0](m)), v)
    if name == "VGPR":
        return _store_lane(m, subscripts, v)
    old = m.values.get(name)
    if not subscripts:
        m.values[name] = v
        return None
    if isinstance(old, list):
        old[number(subscripts[0][0](m))] = v
        return None
    low, high = _bounds(m, subscripts[-1])
    base = old or V("b", 64, 0)
    m.values[name] = V(base.kind, max(base.width, high + 1), _placed(base.bits, low, high, v.bits))
    return None


def _bounds(m: Machine, subscript: tuple[Any, Any, bool]) -> tuple[int, int]:
    first, last, length = subscript
    a = number(first(m))
    if last is None:
        return a, a
    b = number(last(m))
    return (a, a + b - 1) if length else (b, a)


def _placed(old: int, low: int, high: int, bits: int) -> int:
    mask = ((1 << (high - low + 1)) - 1) << low
    return old & ~mask | bits << low & mask


def _store_lane(m: Machine, subscripts: list[Any], v: V) -> None:
    lane, register = number(subscripts[0][0](m)), number(subscripts[1][0](m))
    low, high = _bounds(m, subscripts[2]) if len(subscripts) > 2 else (0, 31)
    m.lanes[lane][register] = V("b", 32, _placed(m.lanes[lane][register].bits, low, high, v.bits))


def execute(body: list[Statement], m: Machine) -> str:
    """Statements in order; says whether a break or return ended them."""
    for statement in body:
        if state := statement(m):
            return state
    return ""


class Library:
    """The pseudo-code of all instructions by lower-case mnemonic, compiled when first asked for."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    @functools.cache  # noqa: B019 - one library lives as long as the tests
    def compiled(self, mnemonic: str) -> list[Statement]:
        """The statements of an instruction."""
        return Compiler(lines_of(self.texts[mnemonic]), _Calls(self)).block()

    def run(self, mnemonic: str, values: dict[str, Any], target: str, lanes: Number = None) -> dict[str, Any]:
        """Run on named values; returns them with what was written."""
        m = Machine({**CONSTANTS, **values}, target, lanes)
        execute(self.compiled(mnemonic), m)
        return m.values


class _Calls(dict[str, Any]):
    """Local functions, and instructions called as functions: `v_min_f32(a, b)`."""

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.library = library

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.library.texts or name in _MINIMUM

    def __missing__(self, name: str) -> Callable[..., V]:
        if name in _MINIMUM:
            return functools.partial(_minimum, name)

        def call(m: Machine, *values: V) -> V:
            named = {f"S{k}": v for k, v in enumerate(values)}
            shared = {k: v for k, v in m.values.items() if k.startswith("WAVE_MODE")}
            return typed(self.library.run(name, {**shared, **named}, m.target)["D0"], values[0])

        return call


_MINIMUM = ("v_minimum_f32", "v_maximum_f32", "v_minimum3_f16", "v_maximum3_f16")


def _minimum(name: str, _: Machine, *values: V) -> V:
    """IEEE-754-2019 minimum and maximum, which the published text names without spelling them out."""
    for v in values:
        if is_nan(v.bits, v.width):
            return V("f", v.width, v.bits | 1 << (v.width - 10 if v.width == 32 else 9))
    pick = min if "min" in name else max
    return pick(values, key=lambda v: (number(v), -(v.bits >> (v.width - 1))))


def typed(v: V, like: V) -> V:
    """A result in the type of an argument."""
    return V(like.kind, like.width, unsigned(v.bits, like.width)) if like.kind in "fuig" else v

"""Refusals: what FlashInfer has and rocade does not, answered by name when called and never before.

Importing a refused name works, since serving engines import many names they never call. An unknown name is an
ordinary AttributeError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn

from rocade._refused_names import FEATURES, MODULES, Feature


class RefusedError(NotImplementedError):
    """A feature of FlashInfer that rocade does not have; the message names it and what to use instead."""


class _RefusedMemberError(RefusedError, AttributeError):
    """A member of a refused class or enum: `hasattr` says no, reading it gives the sentence."""


class _RefusedType(type):
    """Makes classes that can be imported, subclassed and asked with isinstance, but not built."""

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        raise RefusedError(cls.__doc__)

    def __getattr__(cls, name: str) -> NoReturn:
        raise _RefusedMemberError(cls.__doc__)


class RefusedModule(ModuleType):
    """Stands for a FlashInfer module without a counterpart here; its known names are refused at call."""

    def __init__(self, path: str) -> None:
        super().__init__(f"flashinfer.{path}", f"Names of flashinfer.{path} that rocade refuses when called.")
        self._path = path

    def __getattr__(self, name: str) -> object:
        return attribute(self._path, name, self.__name__)


def refuse(argument: str, value: object, *neutral: object) -> None:
    """Raise RefusedError unless `value` is None or one of the `neutral` values, which ask for nothing.

    Tensors are never neutral. A flag or number is compared by value, so `refuse("o_scale", 1, 1.0)` passes.
    """
    if value is None or any(value is n or (_plain(value) and value == n) for n in neutral):
        return
    raise RefusedError(
        f"rocade does not support {argument}; got {_short(value)}. Leave it out"
        + (f" or pass {neutral[0]!r}." if neutral else ".")
    )


def _plain(value: object) -> bool:
    """True for values whose `==` is a bool: a tensor compares element by element."""
    return isinstance(value, (bool, int, float, str))


def _short(value: object) -> str:
    """Short text of a value; a tensor prints as its type, not its contents."""
    return repr(value) if _plain(value) else type(value).__name__


def attributes(module: str) -> Callable[[str], object]:
    """Return a module-level `__getattr__` that refuses FlashInfer's names for the rocade module `module`.

    Use as `__getattr__ = _refused.attributes(__name__)` (behind `if not TYPE_CHECKING`, so that type checkers
    still report misspelt names).
    """
    path = module.partition(".")[2]

    def __getattr__(name: str) -> object:  # noqa: N807 -- the protocol's name, seen in tracebacks
        return attribute(path, name, module)

    return __getattr__


def names(path: str) -> list[str]:
    """Sorted names that `flashinfer.<path>` has and rocade refuses; the empty path is the top level."""
    return sorted(_table(path))


def attribute(path: str, name: str, module: str) -> object:
    """The refused object, or module, called `name` in `path`."""
    feature = _table(path).get(name)
    if feature is not None:
        return _refused(name, feature)
    inner = f"{path}.{name}" if path else name
    if inner in MODULES:
        return refused_module(inner)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


@functools.cache
def refused_module(path: str) -> RefusedModule:
    """The one stand-in for `flashinfer.<path>`."""
    return RefusedModule(path)


@functools.cache
def _table(path: str) -> dict[str, Feature]:
    """Names of one FlashInfer module; its top level shows the names of all of them."""
    return {name: f for f in FEATURES if not path or path in f.modules for name in f.names.split()}


@functools.cache
def _refused(name: str, feature: Feature) -> object:
    """A class for a CapWords name, else a function; made once, so that identity tests hold."""
    sentence = f"rocade has no {name}: {feature.why}; {feature.instead}."
    if name.lstrip("_")[:1].isupper():
        return _RefusedType(name, (), {"__doc__": sentence, "__module__": __name__})

    def refused(*args: object, **kwargs: object) -> NoReturn:
        raise RefusedError(sentence)

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = sentence
    return refused

"""A driver library: found, its functions declared, its error codes turned into text."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class DeviceError(RuntimeError):
    """A driver refused something. The text names the function, the code with its text, and the purpose."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class MissingError(RuntimeError):
    """There is no such driver or no device of it; the text says which of the two."""


# Type of the result, and types of the arguments; None leaves them to the caller.
Prototype = tuple[object, Sequence[object] | None]
ErrorText = Callable[[ctypes.CDLL, int], str]


class Library:
    """Functions that return 0 or an error code."""

    def __init__(self, lib: ctypes.CDLL, text: ErrorText) -> None:
        self._lib = lib
        self._text = text

    def bare(self, name: str) -> Any:  # noqa: ANN401  a ctypes function
        """A function without declared arguments, which halves the cost of a call with eleven of them.

        The caller passes Python ints for 32-bit numbers and ctypes objects for everything wider.
        """
        return self._lib[name]

    def has(self, name: str) -> bool:
        """Whether there is such a function; drivers gain some with time."""
        return hasattr(self._lib, name)

    def call(self, what: str, name: str, *arguments: object) -> None:
        """Call a function; `what` tells in an error what it was for.

        Raises:
            DeviceError: it returned an error code.
        """
        code = getattr(self._lib, name)(*arguments)
        if code:
            raise self.error(what, name, code)

    def error(self, what: str, name: str, code: int) -> DeviceError:
        """The error of a call that returned `code`."""
        return DeviceError(f"{what}: {name} returned {code}, {self._text(self._lib, code)}", code)


def open_library(names: Sequence[str], prototypes: Mapping[str, Prototype], text: ErrorText) -> Library:
    """Load the first of `names` that there is; one that this process has mapped already comes first.

    A wheel of PyTorch may bring its own copy of a driver's library, and two copies in a process do not know
    of each other's memory and streams.

    Raises:
        MissingError: none could be loaded, or it lacks a function.
    """
    absent, refusals = [], []
    for name in (*_mapped(names[0].partition(".so")[0]), *names):
        try:
            lib = ctypes.CDLL(name)
            for function, (result, arguments) in prototypes.items():
                entry = getattr(lib, function)
                entry.restype, entry.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            if "cannot open shared object file" in str(error):
                absent.append(name)
            else:
                refusals.append(str(error))
        else:
            return Library(lib, text)
    if absent:
        refusals.append(f"not installed ({', '.join(absent)})")
    raise MissingError("; ".join(refusals))


def _mapped(stem: str) -> list[str]:
    """Paths of libraries `<stem>.so*` that are in this process."""
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        return []
    fields = (line.split(maxsplit=5) for line in maps.read_text(encoding="utf-8").splitlines())
    paths = {parts[5] for parts in fields if len(parts) == 6}
    return sorted(path for path in paths if os.path.basename(path).startswith(f"{stem}.so"))

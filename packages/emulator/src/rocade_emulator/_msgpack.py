"""A reader of MessagePack, enough for the metadata note of AMDGPU code objects. It writes nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable

MAX_DEPTH = 64  # of lists and maps in each other


class MsgpackError(ValueError):
    """The bytes are not one whole MessagePack value."""


def unpack(data: bytes) -> object:
    """The one value that `data` holds: None, bool, int, float, str, bytes, list or dict.

    Raises:
        MsgpackError: `data` ends early, holds more than a value, or uses a type that is not read here.
    """
    reader = _Reader(data)
    value = reader.value()
    if reader.at != len(data):
        raise MsgpackError(f"{len(data) - reader.at} bytes follow the value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.depth = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise MsgpackError(f"{count} bytes wanted at offset {self.at}, {len(self.data) - self.at} left")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> int:
        return int(struct.unpack(f">{form}", self.take(struct.calcsize(form)))[0])

    def text(self, count: int) -> str:
        try:
            return self.take(count).decode()
        except UnicodeDecodeError as error:
            raise MsgpackError(f"a string before offset {self.at} is no UTF-8") from error

    def array(self, count: int) -> list[object]:
        return [self.value() for _ in range(count)]

    def map(self, count: int) -> dict[object, object]:
        items: dict[object, object] = {}
        for _ in range(count):
            key = self.value()
            if isinstance(key, (list, dict)):
                raise MsgpackError(f"a map key is a {type(key).__name__} at offset {self.at}")
            items[key] = self.value()
        return items

    def value(self) -> object:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise MsgpackError(f"more than {MAX_DEPTH} lists and maps in each other at offset {self.at}")
        value = self._value()
        self.depth -= 1
        return value

    def _value(self) -> object:
        tag = self.take(1)[0]
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag < 0x90:
            return self.map(tag & 0xF)
        if tag < 0xA0:
            return self.array(tag & 0xF)
        if tag < 0xC0:
            return self.text(tag & 0x1F)
        if (read := _BY_TAG.get(tag)) is None:
            raise MsgpackError(f"type 0x{tag:02x} at offset {self.at - 1} is not read here")
        return read(self)


def _sized(form: str, read: Callable[[_Reader, int], object]) -> Callable[[_Reader], object]:
    """A value whose length comes first, as a number of this form."""
    return lambda r: read(r, r.number(form))


def _plain(form: str) -> Callable[[_Reader], object]:
    return lambda r: struct.unpack(f">{form}", r.take(struct.calcsize(form)))[0]


_BY_TAG: dict[int, Callable[[_Reader], object]] = {
    0xC0: lambda _: None,
    0xC2: lambda _: False,
    0xC3: lambda _: True,
    **{0xC4 + k: _sized(form, _Reader.take) for k, form in enumerate("BHI")},
    **{0xCA + k: _plain(form) for k, form in enumerate("fd")},
    **{0xCC + k: _plain(form) for k, form in enumerate("BHIQ")},
    **{0xD0 + k: _plain(form) for k, form in enumerate("bhiq")},
    **{0xD9 + k: _sized(form, _Reader.text) for k, form in enumerate("BHI")},
    **{0xDC + k: _sized(form, _Reader.array) for k, form in enumerate("HI")},
    **{0xDE + k: _sized(form, _Reader.map) for k, form in enumerate("HI")},
}

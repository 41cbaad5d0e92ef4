"""The MessagePack reader: every form it reads, and that malformed bytes raise its own error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocade_emulator._msgpack import MsgpackError, unpack


def pack(value: object) -> bytes:
    """The widest form of each type, so that lengths do not choose it."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"\xdb" + struct.pack(">I", len(value.encode())) + value.encode()
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    assert isinstance(value, dict)
    items = b"".join(pack(k) + pack(v) for k, v in value.items())
    return b"\xdf" + struct.pack(">I", len(value)) + items


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text()
)
TREES = st.recursive(LEAVES, lambda t: st.lists(t, max_size=4) | st.dictionaries(st.text(), t, max_size=4))


@given(TREES)
def test_round_trip(tree: object) -> None:
    assert unpack(pack(tree)) == tree


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x7f", 127),
        (b"\xff", -1),
        (b"\xe0", -32),
        (b"\x82\xa1a\x01\xa1b\x02", {"a": 1, "b": 2}),
        (b"\x93\x01\x02\x03", [1, 2, 3]),
        (b"\xa3abc", "abc"),
        (b"\xc4\x02hi", b"hi"),
        (b"\xc5\x00\x02hi", b"hi"),
        (b"\xca" + struct.pack(">f", 1.5), 1.5),
        (b"\xcc\xff", 255),
        (b"\xcd\x01\x00", 256),
        (b"\xce\x00\x01\x00\x00", 65536),
        (b"\xd0\x80", -128),
        (b"\xd1\x80\x00", -32768),
        (b"\xd2\xff\xff\xff\xfe", -2),
        (b"\xd9\x01x", "x"),
        (b"\xda\x00\x01x", "x"),
        (b"\xdc\x00\x01\x05", [5]),
        (b"\xde\x00\x01\xa1k\x05", {"k": 5}),
    ],
)
def test_every_form(data: bytes, value: object) -> None:
    assert unpack(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x02",
        b"\xc1",
        b"\xd4\x00\x00",
        b"\x81\x90\x01",
        b"\xa5ab",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 99999,
    ],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(MsgpackError):
        unpack(data)


@given(TREES, st.integers(0, 1000))
def test_cut_off(tree: object, cut: int) -> None:
    data = pack(tree)
    with pytest.raises(MsgpackError):
        unpack(data[: cut % len(data)])

"""Takes the code object of one GPU out of a clang offload bundle, the form in which hipcc writes several."""

from __future__ import annotations

import struct

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"


class BundleError(ValueError):
    """The bundle is malformed, compressed, or lacks the target."""


def code_object(data: bytes, target: str | None) -> bytes:
    """The code object for `target` ("gfx942"), or the only one there is when it is None.

    Raises:
        BundleError: none fits, several do, or the bundle cannot be read.
    """
    found = {name: part for name, part in _entries(data).items() if "amdgcn" in name and part}
    if target is not None:
        found = {
            name: part for name, part in found.items() if name.rpartition("--")[2].split(":")[0] == target
        }
    if len(found) != 1:
        names = ", ".join(_entries(data)) or "nothing"
        wanted = f"one for {target}" if target else "a single one (name a target)"
        raise BundleError(f"the bundle holds {names}; wanted {wanted}")
    return next(iter(found.values()))


def is_bundle(data: bytes) -> bool:
    """Whether this is a bundle.

    Raises:
        BundleError: it is a compressed one.
    """
    if data.startswith(COMPRESSED_MAGIC):
        raise BundleError("the bundle is compressed; compile with --no-offload-compress or unpack it first")
    return data.startswith(MAGIC)


def _entries(data: bytes) -> dict[str, bytes]:
    try:
        (count,) = struct.unpack_from("<Q", data, len(MAGIC))
        at, found = len(MAGIC) + 8, {}
        for _ in range(count):
            offset, size, name_size = struct.unpack_from("<QQQ", data, at)
            name = data[at + 24 : at + 24 + name_size].decode("ascii", "replace")
            at += 24 + name_size
            if offset + size > len(data):
                raise BundleError(f"entry {name} ends at byte {offset + size}, the bundle has {len(data)}")
            found[name] = data[offset : offset + size]
    except struct.error as error:
        raise BundleError(f"the bundle ends early: {error}") from error
    return found

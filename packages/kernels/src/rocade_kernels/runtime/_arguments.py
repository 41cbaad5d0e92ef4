"""Argument blocks: a kernel's one by-value struct, made once and filled in a single call for each launch."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence

from rocade_kernels import hip_abi


class Arguments:
    """One argument block and the pointer array that drivers take it by. It belongs to one thread at a time.

    Fill it by the struct's fields (`args.block.rows = 7`), or all at once through the `Layout` it is from.
    """

    __slots__ = ("block", "fill", "params", "params_at")

    def __init__(self, block: ctypes.Structure, pack: struct.Struct | None = None) -> None:
        self.block = block
        self.params = (ctypes.c_void_p * 1)(ctypes.addressof(block))
        self.params_at = ctypes.addressof(self.params)
        packer = pack or hip_abi.packer(type(block))
        # fill(*values): every field in order; 0.6 us for 20 fields, where a ctypes constructor takes 1.8.
        self.fill: Callable[..., None] = functools.partial(packer.pack_into, block, 0)

    def __bytes__(self) -> bytes:
        return bytes(self.block)


class Layout:
    """A struct together with the order in which its caller hands over values, compared when it is made.

    So a field that moves or is renamed stops the caller's import, as it should where packages of two versions
    meet, and never becomes a wrong pointer in a kernel.
    """

    def __init__(self, kind: type[ctypes.Structure], names: Sequence[str]) -> None:
        """Compare.

        Raises:
            ImportError: the struct's fields are not `names`, in this order, or have holes in between.
        """
        own = [name for name, *_ in kind._fields_]
        if own != list(names):
            raise ImportError(f"{kind.__name__} has the fields {own}; its caller fills {list(names)}")
        self._kind = kind
        self._pack = hip_abi.packer(kind)
        last = getattr(kind, own[-1])
        if self._pack.size != last.offset + last.size:
            raise ImportError(f"{kind.__name__} has holes between its fields")

    @property
    def size(self) -> int:
        """Bytes of the struct, with what fills up its end."""
        return ctypes.sizeof(self._kind)

    def make(self) -> Arguments:
        """A new block, all zero."""
        return Arguments(self._kind(), self._pack)

"""Huge buffers whose untouched pages take no memory: for offsets beyond 2^31 and 2^32."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux's value; the constant is missing in Python 3.11


class SparseBuffer:
    """Zeroed memory of any size; a page takes memory when it is first written.

    It is reached through views: `numpy` and `torch` import the library of that name. Views keep it alive.
    """

    def __init__(self, size: int) -> None:
        """Map `size` bytes.

        Raises:
            ValueError: it is no positive number.
            OSError: the system has no address space for them.
        """
        if size < 1:
            raise ValueError(f"a buffer of {size} bytes was asked for; expected one or more")
        self.size = size
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._memory = mmap.mmap(-1, size, flags=flags)
        self._bytes = (ctypes.c_char * size).from_buffer(self._memory)
        self.address = ctypes.addressof(self._bytes)

    def write(self, content: bytes, offset: int = 0) -> None:
        """Put bytes at an offset.

        Raises:
            ValueError: they do not fit.
        """
        if not 0 <= offset <= self.size - len(content):
            raise ValueError(f"{len(content)} bytes at {offset} do not fit into {self.size}")
        self._memory[offset : offset + len(content)] = content

    def read(self, size: int, offset: int = 0) -> bytes:
        """A copy of `size` bytes from an offset on.

        Raises:
            ValueError: the buffer does not have them.
        """
        if offset < 0 or not 0 <= size <= self.size - offset:
            raise ValueError(f"{size} bytes at {offset} are not all part of {self.size}")
        return self._memory[offset : offset + size]

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The whole buffer as bytes, so that it can be an argument of a kernel as it is."""
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.address, False)}

    def numpy(
        self,
        dtype: Any,  # noqa: ANN401
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> Any:  # noqa: ANN401  numpy is no requirement, so its types have no name here
        """A numpy view. `strides` and `offset` are in bytes; without strides it is dense.

        Raises:
            ValueError: the view does not fit.
        """
        import numpy

        whole = numpy.frombuffer(self._memory, numpy.uint8)  # the owner of the view, see _views.py
        return numpy.ndarray(shape, dtype, buffer=whole, offset=offset, strides=strides)

    def torch(
        self,
        dtype: Any,  # noqa: ANN401
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> Any:  # noqa: ANN401  torch is no requirement, so its types have no name here
        """A torch view. `strides` and `offset` are in elements; without strides it is dense.

        Raises:
            RuntimeError: the view does not fit.
        """
        import torch

        whole = torch.frombuffer(self._memory, dtype=dtype)
        if strides is None:
            strides = tuple(_dense(shape))
        return torch.as_strided(whole, shape, strides, offset)


def _dense(shape: tuple[int, ...]) -> list[int]:
    strides = [1] * len(shape)
    for dim in range(len(shape) - 1, 0, -1):
        strides[dim - 1] = strides[dim] * shape[dim]
    return strides

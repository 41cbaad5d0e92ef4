"""The argument block of AITER's forward attention kernels: 32 slots of 16 bytes, each with one value.

All strides are in bytes and 32 bits wide; the kernels multiply them with row numbers in 32 bits, too.
"""

from __future__ import annotations

import ctypes
import functools
from struct import Struct
from typing import NamedTuple

from rocade_kernels.build._code_object import kernel_notes
from rocade_kernels.runtime import Arguments

SLOT = 16  # bytes
LIMIT = 1 << 32  # bytes: what strides, and offsets made of them, stay below


class Forward(NamedTuple):
    """The values, in the order of the slots. Strides of a batch are 0: requests are found by row numbers."""

    out: int
    q: int
    k: int
    v: int
    lse: int  # fp32 natural logarithms; read only if `has_lse`
    scale: float  # of the logits
    max_rows: int  # query rows of a request at most
    q_row: int
    q_tile: int  # of a tile's rows
    q_head: int
    q_batch: int
    group: int  # query heads per KV head
    k_row: int
    k_head: int
    k_batch: int
    option: int  # see `option_of`
    has_lse: int
    max_keys: int  # keys of a request at most
    head_dim_qk: int
    head_dim_vo: int
    heads: int  # query heads
    v_row: int
    v_head: int
    v_batch: int
    out_row: int
    out_head: int
    out_batch: int
    row_counts: int  # address of int32 [requests + 1]: query rows, summed up
    key_counts: int  # address of int32 [requests + 1]: keys, summed up
    lse_head: int
    first_rows: int  # address of int32 [requests]: where each request's query rows begin
    first_keys: int  # address of int32 [requests]: where each request's keys begin


_POINTERS = frozenset(("out", "q", "k", "v", "lse", "row_counts", "key_counts", "first_rows", "first_keys"))


def _slot(name: str) -> str:
    return "Q8x" if name in _POINTERS else "f12x" if name == "scale" else "I12x"


_PACK = Struct("<" + "".join(map(_slot, Forward._fields)))
SIZE = _PACK.size


class _Block(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * SIZE),)


class ForwardArguments(Arguments):
    """A block, and a pointer to each of the many arguments and gaps that the kernels' metadata declares."""

    __slots__ = ()

    def __init__(self, offsets: tuple[int, ...]) -> None:
        super().__init__(_Block(), _PACK)
        at = ctypes.addressof(self.block)
        self.params = (ctypes.c_void_p * len(offsets))(*(at + offset for offset in offsets))
        self.params_at = ctypes.addressof(self.params)


class ForwardBlocks:
    """Makes argument blocks for one code object."""

    def __init__(self, image: bytes) -> None:
        """Read what the code object says of its arguments.

        Raises:
            ImageError: it is torn.
        """
        self._offsets = _offsets(image)

    def make(self) -> ForwardArguments:
        """A new block, all zero."""
        return ForwardArguments(self._offsets)


@functools.lru_cache(maxsize=64)
def _offsets(image: bytes) -> tuple[int, ...]:
    """Byte of the block at which each argument that a caller passes begins."""
    _, (kernel,) = kernel_notes(image)
    arguments = kernel[".args"]
    return tuple(a[".offset"] for a in arguments if not str(a[".value_kind"]).startswith("hidden_"))


def option_of(heads: int, rows: int, *, causal: bool) -> int:
    """What AITER passes as `option`, a choice of schedule.

    Args:
        heads: query heads.
        rows: query rows of all requests.
        causal: whether the kernel masks.
    """
    return 3 if causal and (heads % 8 or rows > 16384) else 5

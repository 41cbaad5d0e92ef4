"""Packs a kernel's arguments, hidden ones included, into its block, and says what memory they point to."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

from rocade_emulator._metadata import Argument, Kernel
from rocade_emulator._views import View, is_tensor, view_of

_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


class ArgumentError(ValueError):
    """An argument does not fit the kernel. The text names it, what was given and what was expected."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a launch: workgroups, and work items of one, each in x, y, z; and bytes of dynamic LDS."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that an argument points to, under the argument's name."""

    label: str
    view: View

    @classmethod
    def of(cls, value: object, label: str) -> Buffer:
        """The memory of a tensor.

        Raises:
            ArgumentError: it has none that a kernel can use.
        """
        try:
            return cls(label, view_of(value))
        except ValueError as error:
            raise ArgumentError(f"{label}: {error}") from None


@dataclass(slots=True)
class Block:
    """A filled argument block."""

    data: bytearray
    buffers: list[Buffer] = field(default_factory=list)


def _dims(shape: Shape) -> int:
    sizes = [g * b for g, b in zip(shape.grid, shape.block, strict=True)]
    return max((axis + 1 for axis, size in enumerate(sizes) if size > 1), default=1)


def _on_axes(name: str, sizes: Callable[[Shape], tuple[int, int, int]]) -> dict[str, Callable[[Shape], int]]:
    """A hidden argument of each axis."""

    def of_axis(axis: int) -> Callable[[Shape], int]:
        return lambda shape: sizes(shape)[axis]

    return {f"hidden_{name}_{letter}": of_axis(axis) for axis, letter in enumerate("xyz")}


# What the launcher puts into a hidden argument; grids are whole numbers of workgroups, so nothing remains.
_HIDDEN: dict[str, Callable[[Shape], int]] = {
    **_on_axes("block_count", lambda shape: shape.grid),
    **_on_axes("group_size", lambda shape: shape.block),
    "hidden_grid_dims": _dims,
    "hidden_dynamic_lds_size": lambda shape: shape.dynamic_lds,
}
# Null: a kernel that goes through one of these pointers is reported out of bounds.
_NULL = {
    "hidden_none",
    *(f"hidden_{what}_{axis}" for what in ("remainder", "global_offset") for axis in "xyz"),
    *(f"hidden_{what}_buffer" for what in ("printf", "hostcall")),
    *(
        f"hidden_{what}"
        for what in ("default_queue", "completion_action", "multigrid_sync_arg", "heap_v1", "queue_ptr")
    ),
}


def pack(kernel: Kernel, args: object, shape: Shape, undefined: Sequence[int | str] = ()) -> Block:
    """The argument block of a launch.

    Args:
        kernel: What the metadata says about it decides places and sizes.
        args: The explicit arguments, in order or by name; or the whole block as bytes.
        shape: Size of the launch.
        undefined: Positions or names of the tensor arguments whose content the kernel must not read.

    Raises:
        ArgumentError: number, name, type or size of an argument is wrong.
    """
    if isinstance(args, (bytes, bytearray, memoryview)):
        if undefined:
            raise ArgumentError("undefined names arguments, which a block given as bytes does not have")
        return Block(_raw(kernel, args))
    block = Block(bytearray(kernel.kernarg_bytes))
    values = _by_position(kernel, args)
    marked = _marked(kernel, undefined)
    for position, (arg, value) in enumerate(zip(kernel.explicit_args, values, strict=True)):
        label = f"argument {position}" + (f" ({arg.name})" if arg.name else "")
        _put(block, arg, _encode(arg, value, label))
        if is_tensor(value) and arg.pointer:
            view = Buffer.of(value, label).view
            writable = view.writable and arg.access != "read_only"
            unread = view.undefined or position in marked
            block.buffers.append(Buffer(label, replace(view, writable=writable, undefined=unread)))
        elif position in marked:
            raise ArgumentError(f"undefined names {label}, which is no tensor")
    for arg in kernel.args:
        if arg.hidden:
            _put(block, arg, _hidden(kernel, arg, shape).to_bytes(arg.size, "little"))
    return block


def _raw(kernel: Kernel, args: bytes | bytearray | memoryview) -> bytearray:
    if len(args) != kernel.kernarg_bytes:
        raise ArgumentError(
            f"the block has {len(args)} bytes, kernel {kernel.name} takes {kernel.kernarg_bytes}"
        )
    return bytearray(args)


def _by_position(kernel: Kernel, args: object) -> Sequence[Any]:
    wanted = kernel.explicit_args
    if isinstance(args, Mapping):
        names = [arg.name for arg in wanted]
        if unknown := set(args) - set(names):
            raise ArgumentError(
                f"kernel {kernel.name} has no argument {', '.join(sorted(map(str, unknown)))}"
            )
        if missing := [name for name in names if name not in args]:
            raise ArgumentError(
                f"kernel {kernel.name} lacks {', '.join(name or '(without name)' for name in missing)}"
            )
        return [args[name] for name in names]
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise ArgumentError(f"args is a {type(args).__name__}; expected a sequence, a mapping or bytes")
    if len(args) != len(wanted):
        expected = ", ".join(f"{arg.name or arg.kind}:{arg.size}" for arg in wanted)
        raise ArgumentError(
            f"{len(args)} arguments given, kernel {kernel.name} takes {len(wanted)}: {expected}"
        )
    return args


def _marked(kernel: Kernel, undefined: Sequence[int | str]) -> set[int]:
    if isinstance(undefined, (int, str)):
        raise ArgumentError(f"undefined is {undefined!r}; expected a list of positions or names")
    names = [arg.name for arg in kernel.explicit_args]
    found = set()
    for mark in undefined:
        if isinstance(mark, str) and mark in names:
            found.add(names.index(mark))
        elif isinstance(mark, int) and 0 <= mark < len(names):
            found.add(mark)
        else:
            raise ArgumentError(f"undefined names {mark!r}, which kernel {kernel.name} does not have")
    return found


def _put(block: Block, arg: Argument, encoded: bytes) -> None:
    assert len(encoded) == arg.size
    if arg.offset + arg.size > len(block.data):
        raise ArgumentError(
            f"argument {arg.name or arg.kind} ends behind the block of {len(block.data)} bytes"
        )
    block.data[arg.offset : arg.offset + arg.size] = encoded


def _hidden(kernel: Kernel, arg: Argument, shape: Shape) -> int:
    if (value := _HIDDEN.get(arg.kind)) is not None:
        return value(shape)
    if arg.kind in _NULL:
        return 0
    raise ArgumentError(f"kernel {kernel.name} wants {arg.kind}, which is not emulated")


def _encode(arg: Argument, value: Any, label: str) -> bytes:  # noqa: ANN401  whatever the caller passes
    if arg.pointer:
        return _pointer(value, label).to_bytes(8, "little")
    if arg.kind != "by_value":
        raise ArgumentError(f"{label} is a {arg.kind}, which is not emulated")
    if is_tensor(value) and getattr(value, "shape", None) != ():  # one element is a number, too
        raise ArgumentError(f"{label} is passed by value in {arg.size} bytes; a tensor was given")
    if isinstance(value, float):
        if arg.size not in _FLOATS:
            raise ArgumentError(f"{label} has {arg.size} bytes, which holds no float")
        return struct.pack(_FLOATS[arg.size], value)
    try:
        number = operator.index(value)
    except TypeError:
        return _exact_bytes(arg, value, label)
    if not -(1 << arg.size * 8 - 1) <= number < 1 << arg.size * 8:
        raise ArgumentError(f"{label} is {number}, which does not fit into {arg.size} bytes")
    return (number & (1 << arg.size * 8) - 1).to_bytes(arg.size, "little")


def _exact_bytes(arg: Argument, value: Any, label: str) -> bytes:  # noqa: ANN401  any buffer
    try:
        encoded = bytes(memoryview(value).cast("B"))
    except TypeError:
        expected = "int, float, bytes, a ctypes structure or a numpy scalar"
        raise ArgumentError(f"{label} is a {type(value).__name__}; expected {expected}") from None
    if len(encoded) != arg.size:
        raise ArgumentError(f"{label} has {len(encoded)} bytes, the kernel takes {arg.size}")
    return encoded


def _pointer(value: Any, label: str) -> int:  # noqa: ANN401  whatever the caller passes
    if value is None:
        return 0
    if isinstance(value, Integral) and 0 <= int(value) < 1 << 64:
        return int(value)
    if is_tensor(value):
        return Buffer.of(value, label).view.address
    raise ArgumentError(f"{label} is a {type(value).__name__}; expected a tensor, None or an address")


def dispatch_packet(shape: Shape, kernel: Kernel, kernarg: int) -> bytes:
    """The 64-byte AQL packet that a kernel with dispatch_ptr reads. There is no completion signal."""
    items = [g * b for g, b in zip(shape.grid, shape.block, strict=True)]
    kernel_dispatch = 2  # packet type
    setup = _dims(shape)
    lds = kernel.lds_bytes + shape.dynamic_lds
    head = struct.pack("<HH4H3I", kernel_dispatch, setup, *shape.block, 0, *items)
    return head + struct.pack("<IIQQQQ", kernel.scratch_bytes, lds, 0, kernarg, 0, 0)

"""Tensors as memory: which bytes a numpy array or torch tensor covers, without the holes in between."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any

MAX_DIMS = 8
_MAX_ELEMENT = 1 << 31
_TYPE = re.compile(r"([<>|=]?)([a-zA-Z])(\d*)")  # numpy's typestr
_UNICODE_BYTES = 4


@dataclass(frozen=True, slots=True)
class View:
    """Memory of one tensor: address of its first element, and the bytes that it covers.

    Every byte of [start, start + size) counts when `sizes` is empty. Else the covered bytes are blocks of
    `element` bytes at start + sum(i_d * strides[d]) for 0 <= i_d < sizes[d], with strides falling.
    """

    address: int  # of the element with index 0: what a kernel gets as pointer
    start: int
    size: int
    writable: bool
    element: int = 0
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    origin: int = 0  # address of the first byte of the allocation that it is part of
    undefined: bool = False  # its content must not be read before it is written

    def covers(self, address: int) -> bool:
        """Whether the byte at an address is one of an element."""
        offset = address - self.start
        if not 0 <= offset < self.size:
            return False
        for size, stride in zip(self.sizes, self.strides, strict=True):
            offset -= min(offset // stride, size - 1) * stride
        return not self.sizes or offset < self.element


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """Marks a tensor argument that the kernel must not write."""

    tensor: Any


@dataclass(frozen=True, slots=True)
class Undefined:
    """Marks a tensor argument whose content the kernel must not read before it has written it."""

    tensor: Any


def is_tensor(value: object) -> bool:
    """Whether it is a torch tensor or offers numpy's array interface, marked or not.

    numpy's scalars offer it, too, but for a copy of their value: they are numbers.
    """
    if isinstance(value, (ReadOnly, Undefined)):
        return True
    return not isinstance(value, Number) and (
        hasattr(value, "data_ptr") or hasattr(value, "__array_interface__")
    )


def view_of(value: Any) -> View:  # noqa: ANN401  any array library's type
    """The memory of a tensor.

    Raises:
        ValueError: it is no tensor, or has no elements in the host's memory as a kernel would read them.
    """
    if isinstance(value, (ReadOnly, Undefined)):
        view = view_of(value.tensor)
        writable = view.writable and isinstance(value, Undefined)
        undefined = view.undefined or isinstance(value, Undefined)
        if undefined and not writable:
            raise ValueError(
                "a tensor is marked as undefined and may not be written, so nothing can be done with it"
            )
        return replace(view, writable=writable, undefined=undefined)
    if not is_tensor(value):
        raise ValueError(f"a {type(value).__name__} was given; expected a numpy array or a torch CPU tensor")
    return _of_torch(value) if hasattr(value, "data_ptr") else _of_array(value)


def _of_torch(value: Any) -> View:  # noqa: ANN401  torch is no requirement
    if value.device.type != "cpu":
        raise ValueError(f"a tensor on {value.device} was given; the emulator works on CPU tensors")
    if str(value.layout) != "torch.strided" or value.is_nested:
        kind = "nested" if value.is_nested else value.layout
        raise ValueError(f"a {kind} tensor was given; the emulator works on dense ones")
    if value.is_conj() or value.is_neg():
        raise ValueError(
            "a tensor was given whose conjugation or sign is pending; resolve_conj, resolve_neg do it"
        )
    item = value.element_size()
    strides = tuple(stride * item for stride in value.stride())
    view = _view(value.data_ptr(), tuple(value.shape), strides, item, True)
    return replace(view, origin=value.untyped_storage().data_ptr())


def _item_bytes(typestr: str) -> int:
    """Size of an element of numpy's type."""
    found = _TYPE.match(typestr)
    order, kind, size = found.groups() if found else ("", "O", "")
    if kind == "O":
        raise ValueError("an array of Python objects was given; expected numbers")
    if order == ">" and int(size) > 1:
        raise ValueError("a big-endian array was given; a GPU reads little-endian numbers")
    return int(size) * (_UNICODE_BYTES if kind == "U" else 1)


def _of_array(value: Any) -> View:  # noqa: ANN401  any array library's type
    interface = value.__array_interface__
    address, read_only = interface["data"]
    item = _item_bytes(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or _dense_strides(shape, item)
    view = _view(address, shape, tuple(strides), item, not read_only)
    return replace(view, origin=_origin(value, view.start))


def _origin(array: Any, start: int) -> int:  # noqa: ANN401  any array library's type
    """Where the array that owns the memory begins; arrays over foreign memory count as their own owners."""
    while hasattr(base := getattr(array, "base", None), "__array_interface__"):
        array = base
    return min(start, int(array.__array_interface__["data"][0]))


def _dense_strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    strides: list[int] = []
    for size in reversed(shape):
        strides.insert(0, item)
        item *= size
    return tuple(strides)


def _view(address: int, shape: tuple[int, ...], strides: tuple[int, ...], item: int, writable: bool) -> View:
    if 0 in shape:
        return View(address, address, 0, writable)
    start = address + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    # Dimensions that move nowhere cover nothing more.
    dims = sorted(((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1 and s), reverse=True)
    size = item + sum(s * (n - 1) for s, n in dims)
    element, dims = _merge(item, dims)
    if not dims or len(dims) > MAX_DIMS or not _nested(element, dims):
        # Dense; or overlapping itself, where only the hull is checked.
        return View(address, start, size, writable)
    return View(address, start, size, writable, element, tuple(n for _, n in dims), tuple(s for s, _ in dims))


def _merge(item: int, dims: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """Join dimensions that follow each other without a hole, innermost first."""
    while dims and dims[-1][0] == item and item * dims[-1][1] < _MAX_ELEMENT:
        item *= dims.pop()[1]
    kept: list[tuple[int, int]] = []  # rising strides
    for stride, size in reversed(dims):
        if kept and stride == kept[-1][0] * kept[-1][1]:
            kept[-1] = (kept[-1][0], kept[-1][1] * size)
        else:
            kept.append((stride, size))
    return item, kept[::-1]


def _nested(element: int, dims: list[tuple[int, int]]) -> bool:
    """Whether each stride steps over all that the smaller ones cover, so that an address has one index."""
    covered = element
    for stride, size in reversed(dims):
        if stride < covered:
            return False
        covered += stride * (size - 1)
    return True

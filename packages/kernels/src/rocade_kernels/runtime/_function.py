"""A kernel of a driver's module; both vendors' plain launch calls take the same eleven arguments."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int32, c_void_p
from typing import Any, NoReturn, cast

from rocade_kernels import _native
from rocade_kernels.runtime import _early, _packed
from rocade_kernels.runtime._arguments import Arguments
from rocade_kernels.runtime._interface import Grid
from rocade_kernels.runtime._library import DeviceError, Library

AFTER_FORK = (
    "this process was forked from one that already used the GPU, which no driver supports; start worker "
    "processes with multiprocessing's 'spawn' or 'forkserver' method"
)
# Returns whether the launch is worth another try, after it has changed something.
Mend = Callable[[int], bool]
_pack = _packed.QUEUE.pack


class DriverFunction:
    """One loaded kernel. Its launch returns before the kernel runs, and allocates nothing."""

    __slots__ = (
        "__weakref__",
        "_early_name",
        "_entry",
        "_handle",
        "_kept",
        "_launch",
        "_launch_name",
        "_lds",
        "_library",
        "_mend",
        "_raise_lds",
        "early_entry",
        "name",
    )

    def __init__(
        self,
        name: str,
        library: Library,
        launch_name: str,
        handle: int,
        *,
        lds: int,
        raise_lds: Callable[[int, int], None],
        mend: Mend,
        kept: object = None,
        early_name: str = "",
    ) -> None:
        """Wrap a handle.

        Args:
            name: of the instance, for messages.
            library: the driver's.
            launch_name: its launch function.
            handle: of the kernel.
            lds: bytes of dynamic local memory that may be asked for without `raise_lds`.
            raise_lds: `(handle, bytes)` asks the driver for more, once.
            mend: given the code of a failed launch, sets right what can be; True to launch again.
            kept: what must live as long as the kernel: a driver may go on reading the image it was given.
            early_name: its function for launches that may start early, as cuLaunchKernelEx; "": none.
        """
        self.name = name
        self._library = library
        self._launch_name = launch_name
        self._early_name = early_name
        entry, early = library.bare(launch_name), library.bare(early_name) if early_name else None
        self._entry = _address(entry)
        self.early_entry = 0 if early is None else _address(early)
        self._launch = _queue(entry, early)
        self._handle = handle
        self._lds = lds
        self._raise_lds = raise_lds
        self._mend = mend
        self._kept = kept
        _alive.add(self)

    @property
    def handles(self) -> tuple[int, int]:
        """The driver's handle of the kernel, and the address of its launch function."""
        return self._handle, self._entry

    def launch(
        self,
        grid: Grid,
        block: int,
        lds: int,
        stream: int,
        args: Arguments,
        reads: Sequence[object] = (),
        writes: Sequence[object] = (),
        early: bool = False,
    ) -> None:
        """See `Function.launch`."""
        if lds > self._lds:
            self._raise_lds(self._handle, lds)
            self._lds = lds
        x, y, z = grid
        with_early = self.early_entry if early else 0
        queued = _pack(self._entry, self._handle, x, y, z, block, lds, stream, args.params_at, with_early)
        code = self._launch(queued)
        if code:
            self._again(code, queued)

    def _again(self, code: int, queued: bytes) -> None:
        """Mend and launch once more, or raise."""
        if self._mend(code):
            code = self._launch(queued)
        if code:
            x, y, z, block, lds, _, _, early = _packed.QUEUE.unpack(queued)[2:]
            what = f"{self.name}, grid ({x}, {y}, {z}), block {block}, {lds} bytes of dynamic local memory"
            raise self._library.error(what, self._early_name if early else self._launch_name, code)


def _address(entry: Any) -> int:  # noqa: ANN401  a ctypes function
    return c_void_p.from_address(ctypes.addressof(entry)).value or 0


def _queue(entry: Any, early: Any) -> Callable[[bytes], int]:  # noqa: ANN401  ctypes functions
    """What launches a packed rk_queue: natively where it can, since eleven arguments take ctypes a while.

    Either way other threads run while the driver works.
    """
    native = _native.library_or_none()
    if native is not None:
        function = native["rk_queue_launch"]  # a new object, whose types are its own
        function.restype, function.argtypes = c_int32, [c_char_p]
        return cast("Callable[[bytes], int]", function)

    def launch(queued: bytes) -> int:
        _, handle, x, y, z, block, lds, stream, params, is_early = _packed.QUEUE.unpack(queued)
        if is_early:
            config = _early.config((x, y, z), block, lds, stream)
            return int(early(ctypes.byref(config), c_void_p(handle), c_void_p(params), None))
        on = (c_void_p(stream), c_void_p(params), None)
        return int(entry(c_void_p(handle), x, y, z, block, 1, 1, lds, *on))

    return launch


_alive: weakref.WeakSet[DriverFunction] = weakref.WeakSet()


def _dead(*_: object) -> NoReturn:
    raise DeviceError(AFTER_FORK)


def _after_fork() -> None:
    """In a child, every handle belongs to the parent: a call with one may hang or die."""
    for function in list(_alive):
        function._launch = _dead


os.register_at_fork(after_in_child=_after_fork)

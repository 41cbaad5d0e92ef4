"""One GPU as backends see it, real or emulated: its size, what is loaded on it, how to launch there."""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch

from arch_caps import TARGETS, Feature, Level
from rocade import _device, _emulation
from rocade._place import Place
from rocade.backends._emulator import EmulatedRuntime
from rocade_kernels import build, runtime
from rocade_kernels._version import __version__
from rocade_kernels.build import Instance
from rocade_kernels.runtime import Arguments, DriverFunction, Function, Launched, Layout, Loaded

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", None: ""}
Key = tuple["Kernel", torch.dtype | None, int]
Passed = Callable[[], bool]


class Blocks(Protocol):
    """Makes argument blocks."""

    def make(self) -> Arguments:
        """A new block, all zero."""


class Foreign(NamedTuple):
    """A kernel that is not of `rocade_kernels`; other arguments of it are another one."""

    name: str
    entry: str  # its symbol
    digest: str  # of its code
    layout: Blocks


class Kernel:
    """A kernel's name, variant and argument struct. One constant each, so that it is found by identity."""

    __slots__ = ("layout", "name", "variant")

    def __init__(self, name: str, layout: Layout, variant: str = "") -> None:
        self.name = name
        self.layout = layout
        self.variant = variant


_LATEST = threading.local()  # .launcher: the one that the thread used last


class Launcher:
    """One instance on one GPU. Every thread has an argument block of its own."""

    __slots__ = ("_function", "_local", "gpu", "kernel")

    def __init__(self, gpu: Gpu, function: Function, kernel: Kernel | Foreign) -> None:
        self.gpu = gpu
        self.kernel = kernel
        self._function = function
        self._local = threading.local()

    def arguments(self) -> Arguments:
        """This thread's block; what was in it is of the launch before."""
        try:
            block: Arguments = self._local.block
        except AttributeError:
            block = self._local.block = self.kernel.layout.make()
        return block

    def launched(self) -> Launched | None:
        """This thread's last launch, for a driver to repeat; None for other runtimes."""
        if not isinstance(self._function, DriverFunction):
            return None
        grid, block, lds, early = self._local.last
        by = self._function.early_entry if early else 0
        return Launched(*self._function.handles, grid, block, lds, self.arguments(), by)

    def launch(
        self,
        grid: tuple[int, int, int],
        block: int,
        args: Arguments,
        reads: Sequence[object],
        writes: Sequence[object],
        lds: int = 0,
        *,
        early: bool = False,
    ) -> None:
        """Queue a run on the current stream of the GPU; see `runtime.Function.launch`.

        `early` is for kernels that wait by themselves, and ignored by GPUs that cannot.
        """
        gpu = self.gpu
        early = early and gpu.starts_early
        self._local.last = (grid, block, lds, early)
        _LATEST.launcher = self
        if gpu.is_current():
            self._function.launch(grid, block, lds, gpu.stream(), args, reads, writes, early)
            return
        with torch.cuda.device(gpu.index):
            self._function.launch(grid, block, lds, gpu.stream(), args, reads, writes, early)


def last_launched(gpu: Gpu, kernels: Sequence[Kernel]) -> tuple[Kernel, Launched] | None:
    """This thread's last launch of all, if it was of one of these kernels and on this GPU."""
    launcher: Launcher | None = getattr(_LATEST, "launcher", None)
    if launcher is None or launcher.gpu is not gpu:
        return None
    kernel = launcher.kernel
    if not isinstance(kernel, Kernel) or kernel not in kernels:
        return None
    launched = launcher.launched()
    return None if launched is None else (kernel, launched)


class Gpu:
    """Where launches go."""

    def __init__(
        self,
        on: runtime.Runtime,
        index: int,
        stream: Callable[[], int],
        is_current: Callable[[], bool],
        is_capturing: Callable[[], bool],
        mark: Callable[[], Passed] | None = None,
    ) -> None:
        """`mark()` marks the current stream; what it returns tells whether the device is past that point."""
        facts = on.facts()
        self.target = on.target
        self.units = facts.compute_units
        self.wave = facts.wave_size
        self.lds_bytes = facts.lds_bytes
        # A PTX kernel that needs much local memory declares none, and is given it by the launch.
        self.gives_lds = Instance("", on.target).is_ptx
        self.starts_early = TARGETS[on.target].level(Feature.EARLY_START) is Level.NATIVE
        self.index = index  # torch's; -1 for the emulator
        self.stream = stream
        self.is_current = is_current
        self.is_capturing = is_capturing
        self.mark = mark
        self.facts = facts
        self._loaded = Loaded(on)
        self._launchers: dict[Key, Launcher] = {}

    def kernel(self, kernel: Kernel, dtype: torch.dtype | None = None, head_dim: int = 0) -> Launcher:
        """The launcher of an instance, whose code is found, or built, and loaded the first time.

        Raises:
            RuntimeError: that would be now, and a graph is being captured.
            BuildError: there is no code for it, and none could be built.
            DeviceError: the driver refused the code.
        """
        found = self._launchers.get((kernel, dtype, head_dim))
        return found or self._load(kernel, dtype, head_dim)

    def _load(self, kernel: Kernel, dtype: torch.dtype | None, head_dim: int) -> Launcher:
        instance = Instance(kernel.name, self.target, DTYPES[dtype], head_dim, kernel.variant)
        launcher = Launcher(self, self._function(instance, lambda: _fitting(kernel, instance)), kernel)
        return self._launchers.setdefault((kernel, dtype, head_dim), launcher)

    def foreign(self, kernel: Foreign, image: Callable[[], bytes]) -> Launcher:
        """The launcher of a kernel that another project built; what `image()` returns is loaded once.

        Raises:
            RuntimeError: that would be now, and a graph is being captured.
            DeviceError: the driver refused the code.
        """
        function = self._function(kernel, lambda: _ForeignCode(kernel, image()))
        return Launcher(self, function, kernel)

    def _function(self, kernel: runtime.Named, code: Callable[[], runtime.Image]) -> Function:
        function = self._loaded.get(kernel)
        if function is None:
            if self.is_capturing():
                raise RuntimeError(
                    f"{kernel.name} is not loaded on this device yet, and a graph is being captured, in "
                    "which only launches may happen: make one call of this kind before the capture"
                )
            function = self._loaded.load(kernel, code)
        return function


class _ForeignCode(NamedTuple):
    """What a runtime loads."""

    instance: Foreign
    image: bytes


def _fitting(kernel: Kernel, instance: Instance) -> build.Code:
    """The code of an instance, once it is sure that it takes the struct that callers fill.

    Raises:
        BuildError: there is no code, or it is of another version of the package.
    """
    code = build.code(instance)
    takes = code.resources.kernarg_bytes
    if takes != kernel.layout.size:
        text = f"{instance.name} takes {takes} bytes of arguments, this version passes {kernel.layout.size}"
        raise build.BuildError(f"{text}: install rocade and rocade-kernels of one version")
    return code


def vendor(target: str) -> str:
    """Who made a target, in the words of `rocade_kernels.runtime`."""
    return str(TARGETS[target].vendor)


def missing(place: Place) -> str:
    """Why nothing can run at a place, or nothing."""
    return "" if place.emulated else runtime.missing(vendor(place.target))


@functools.cache
def without_code(target: str) -> str:
    """Why there is no code for a target: neither shipped nor cached, and no compiler. Empty: there is some.

    Fetches one kernel, which takes half a second where it has to be built.
    """
    probe = next((instance for instance in build.INSTANCES if instance.target == target), None)
    if probe is None:
        return f"no kernel of this version is for {target}"
    try:
        build.code(probe)
    except build.BuildError as error:
        return str(error)
    return ""


def origin(target: str) -> str:
    """Where code for a target comes from: a wheel, or the compiler that builds it here."""
    store = build.Store()
    if store.shipped is not None and (store.shipped / "manifest.json").is_file():
        return f"shipped with rocade-kernels {__version__}"
    probe = next(instance for instance in build.INSTANCES if instance.target == target)
    try:
        return f"built by {build.toolchain_for(probe).identity}"
    except build.BuildError:
        return "built earlier, by a compiler that is gone"


def driver(place: Place) -> dict[str, str]:
    """What runs the code at a place, with its version."""
    if place.emulated:
        return {"rocade_emulator": str(importlib.import_module("rocade_emulator").__version__)}
    return {"driver": first_at(place).facts.driver}


def first_at(place: Place) -> Gpu:
    """The first GPU of this process that is at a place."""
    indices = range(torch.cuda.device_count())
    devices = [torch.device("cuda", index) for index in indices]
    index = next(device.index for device in devices if _device.target(device) == place.target)
    return _gpus.get(index) or _open(index)


def gpu_of(tensor: torch.Tensor) -> Gpu:
    """The GPU that holds a tensor; for a CPU tensor the one that is emulated in this thread.

    Raises:
        DeviceError: the driver refuses the device.
    """
    return _gpu(tensor.get_device())


def gpu_on(device: torch.device) -> Gpu:
    """The GPU that tensors on a device are on; see `gpu_of`."""
    if device.type == "cpu":
        return _emulated(_emulation.current())
    index: int | None = device.index
    return _gpu(torch.cuda.current_device() if index is None else index)


def _gpu(index: int) -> Gpu:
    if index < 0:
        return _emulated(_emulation.current())
    return _gpus.get(index) or _open(index)


_gpus: dict[int, Gpu] = {}


def _open(index: int) -> Gpu:
    device = torch.device("cuda", index)
    target = _device.target(device)
    gpu = Gpu(
        runtime.device(vendor(target), index, target),
        index,
        _raw_stream(index),
        _is_current(index),
        torch.cuda.is_current_stream_capturing,
        _marks(index, vendor(target)),
    )
    return _gpus.setdefault(index, gpu)


def _emulated(emulation: _emulation.Emulation | None) -> Gpu:
    if emulation is None:
        raise RuntimeError("a CPU tensor came to the GPU backend outside of rocade.emulate")
    if not isinstance(emulation.device, Gpu):
        emulation.device = Gpu(EmulatedRuntime(emulation), -1, _no_stream, _yes, _no)
    return emulation.device


def _no_stream() -> int:
    return 0


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


def _raw_stream(index: int) -> Callable[[], int]:
    """Reads the handle of the current stream; torch's own call for it makes an object each time, 2 us."""
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return functools.partial(raw, index)
    return lambda: int(torch.cuda.current_stream(index).cuda_stream)


def _is_current(index: int) -> Callable[[], bool]:
    """Whether this thread's device is the one; a machine with one GPU need not ask."""
    if torch.cuda.device_count() == 1:
        return _yes
    current = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    return lambda: bool(current() == index)


def _marks(index: int, maker: str) -> Callable[[], Passed]:
    """Records events; not to be called, nor its results, by what is being captured itself."""

    def mark() -> Passed:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(index))
        return functools.partial(_has_passed, event, maker)

    return mark


def _has_passed(event: torch.cuda.Event, maker: str) -> bool:
    with runtime.relaxed(maker):  # another thread, or this one on another stream, may be capturing
        return bool(event.query())  # type: ignore[no-untyped-call]


os.register_at_fork(after_in_child=_gpus.clear)  # their handles are the parent's; the runtime says what then

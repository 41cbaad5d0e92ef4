"""Runs a kernel: packs arguments, registers memory, calls the core, and gathers what it found."""

from __future__ import annotations

import ctypes
import mmap
import operator
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocade_emulator import _native
from rocade_emulator._kernarg import Block, Buffer, Shape, dispatch_packet, pack
from rocade_emulator._metadata import PRELOAD_PROLOGUE, Kernel
from rocade_emulator._program import Program
from rocade_emulator._result import CHECKS, EmulationError, Result, counters_of, report_of
from rocade_emulator._trace import Step, step_of
from rocade_emulator._views import View, is_tensor

SCHEDULES = {"round_robin": 0, "run_to_barrier": 1, "random": 2}
STEP_LIMIT = 2_000_000_000
_ALL_CHECKS = sum(CHECKS.values())
_PROGRESS_SECONDS = 0.25
_OWN_GRANULE = 16
_MAX_THREADS = 1024
_MAX_ITEMS = (1 << 32) - 1  # of a grid on an axis: the dispatch packet has 32 bits for them

Dims = int | Sequence[int]
Progress = Callable[[int], None]
Trace = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class _Run:
    """How to run, as opposed to what."""

    schedule: str
    quantum: int
    seed: int
    checks: int
    resident: int
    threads: int
    step_limit: int
    max_reports: int
    preload: bool


@dataclass(slots=True)
class _Memory:
    """Memory of one launch: what is registered, and what must stay alive until it is over."""

    ranges: list[_native.RangeStruct] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)

    def own(self, content: bytes | bytearray) -> int:
        """A read-only copy at an address of its own page; returns the address.

        It is filled up to 16 bytes: compilers round a scalar load up to what is sure to be allocated.
        """
        content = bytes(content).ljust(max(-(-len(content) // _OWN_GRANULE), 1) * _OWN_GRANULE, b"\0")
        page = mmap.mmap(-1, len(content))
        page[:] = content
        view = (ctypes.c_char * len(page)).from_buffer(page)
        self.kept += [page, view]
        address = ctypes.addressof(view)
        self.ranges.append(_range(View(address, address, len(content), False, origin=address)))
        return address


def launch(
    program: Program,
    kernel: str | Kernel | None,
    grid: Dims,
    block: Dims,
    args: object,
    *,
    buffers: Iterable[Any] = (),
    dynamic_lds: int = 0,
    schedule: str = "round_robin",
    quantum: int = 1,
    seed: int = 0,
    checks: str | Iterable[str] = "all",
    resident: int = 4,
    threads: int = 1,
    step_limit: int = STEP_LIMIT,
    undefined: Sequence[int | str] = (),
    preload: bool = True,
    max_reports: int = 64,
    progress: Progress | None = None,
    trace: Trace | None = None,
) -> Result:
    """Run a kernel on tensors in host memory, which it reads and writes in place.

    A tensor argument makes exactly the bytes of its elements accessible: the holes of a strided view, and
    what lies in front of it and behind it, are out of bounds.

    Args:
        program: The code object.
        kernel: Name of the kernel; None when the program has a single one.
        grid: Number of workgroups, in x or in x, y, z.
        block: Work items of a workgroup, in x or in x, y, z.
        args: The explicit arguments in order, or a mapping by name, or the whole argument block as bytes.
            Pointers are numpy arrays, torch CPU tensors, SparseBuffers, None or addresses; values are ints,
            floats, bytes, ctypes structures or numpy scalars, converted by the argument's size. The metadata
            does not say whether four bytes are a float: pass 1.0, not 1, for a float.
        buffers: More tensors that the kernel may touch: those whose addresses stand in structures or in
            memory. Here and in `args`, `ReadOnly(tensor)` must not be written, and `Undefined(tensor)` not
            be read before it is written. Where tensors share bytes, the kernel may do with them what it
            may with one of the tensors.
        dynamic_lds: Bytes of LDS beyond what the kernel declares.
        schedule: "round_robin" gives each wave `quantum` instructions in turn; "run_to_barrier" lets a wave
            run until it waits; "random" draws the wave and up to `quantum` instructions from `seed`.
        quantum: Instructions of a turn.
        seed: Of the random schedule.
        checks: "all", "none", or names out of "waits", "races", "bounds", "uninitialised", "hazards",
            "alignment".
        resident: Workgroups that make progress together on one host thread, for kernels that wait for each
            other.
        threads: Host threads.
        step_limit: Wave instructions after which the run stops; 0 is no limit.
        undefined: Positions or names of tensor arguments whose content the kernel must not read before
            writing it; the same as `Undefined(tensor)` in `args`.
        preload: Enter a kernel that has preloaded arguments as the hardware does, with the arguments in
            SGPRs. False enters it at its symbol, where code that loads them itself begins.
        max_reports: Findings to keep, those of one kind at one instruction counting as one.
        progress: Called with the number of instructions so far, about four times a second.
        trace: Called after every instruction with a `Step`; slow, and with several threads from all of them.
            What it raises ends the run and comes out of this function.

    Returns:
        What was found and counted. Findings do not raise; `Result.check` does.

    Raises:
        EmulationError: the run stopped early: an unknown instruction, the step limit, a deadlock.
        ArgumentError: an argument does not fit the kernel.
        ValueError: another argument of this function is wrong.
        KeyError: there is no such kernel.
    """
    found = kernel if isinstance(kernel, Kernel) else program.kernel(kernel)
    run = _Run(schedule, quantum, seed, _checks(checks), resident, threads, step_limit, max_reports, preload)
    shape = Shape(_dims("grid", grid), _dims("block", block), dynamic_lds)
    _validate(program, found, shape, run)
    packed = pack(found, args, shape, undefined)
    if is_tensor(buffers):
        raise ValueError("buffers is a single tensor; expected a list of them")
    packed.buffers += [Buffer.of(value, f"buffer {k}") for k, value in enumerate(buffers)]
    result = _run(program, found, shape, packed, run, progress, trace)
    if result.stopped:
        raise EmulationError(result.describe(), result)
    return result


def _dims(name: str, value: Dims) -> tuple[int, int, int]:
    try:
        given = tuple(map(operator.index, value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        given = ()
    if not 1 <= len(given) <= 3 or not all(0 < n < 1 << 31 for n in given):
        raise ValueError(f"{name} is {value!r}; expected one to three positive ints")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _checks(value: str | Iterable[str]) -> int:
    if value == "all":
        return _ALL_CHECKS
    if not isinstance(value, Iterable):
        raise ValueError(f"checks is {value!r}; expected names of checks")
    names = () if value == "none" else (value,) if isinstance(value, str) else tuple(value)
    if unknown := [name for name in names if name not in CHECKS]:
        raise ValueError(f"checks names {unknown}; there are all, none, {', '.join(CHECKS)}")
    return sum(CHECKS[name] for name in set(names))


def _validate(program: Program, kernel: Kernel, shape: Shape, run: _Run) -> None:
    items = shape.block[0] * shape.block[1] * shape.block[2]
    if items > kernel.max_block:
        raise ValueError(
            f"block {shape.block} is {items} work items, kernel {kernel.name} allows {kernel.max_block}"
        )
    if kernel.required_block and shape.block != kernel.required_block:
        raise ValueError(f"block is {shape.block}, kernel {kernel.name} requires {kernel.required_block}")
    if any(g * b > _MAX_ITEMS for g, b in zip(shape.grid, shape.block, strict=True)):
        raise ValueError(
            f"grid {shape.grid} of blocks {shape.block} has an axis of more than {_MAX_ITEMS} work items"
        )
    _whole("dynamic_lds", shape.dynamic_lds, 0)
    lds = kernel.lds_bytes + shape.dynamic_lds
    if lds > program.target.lds_bytes:
        raise ValueError(
            f"{lds} bytes of LDS are asked for, {program.target.name} has {program.target.lds_bytes}"
        )
    if run.schedule not in SCHEDULES:
        raise ValueError(f"schedule is {run.schedule!r}; expected one of {', '.join(SCHEDULES)}")
    for name in ("quantum", "resident", "max_reports"):
        _whole(name, getattr(run, name), 1)
    _whole("threads", run.threads, 1, _MAX_THREADS)
    _whole("step_limit", run.step_limit, 0, (1 << 64) - 1)
    _whole("seed", run.seed, -(1 << 63), (1 << 64) - 1)


def _whole(name: str, value: Any, least: int, most: int = (1 << 32) - 1) -> None:  # noqa: ANN401
    """Refuse what is no whole number of this size: ctypes would cut it off.

    Raises:
        ValueError: it is none.
    """
    try:
        fits = least <= operator.index(value) <= most
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(f"{name} is {value!r}; expected a whole number from {least} to {most}")


def _range(view: View) -> _native.RangeStruct:
    found = _native.RangeStruct(
        view.start, view.size, view.writable, view.undefined, view.element, len(view.sizes)
    )
    found.sizes[: len(view.sizes)] = view.sizes
    found.strides[: len(view.strides)] = view.strides
    found.origin = view.origin
    return found


def _merged(buffers: Iterable[Buffer]) -> list[_native.RangeStruct]:
    """One range for each distinct view: a tensor given twice is writable if either argument is."""
    found: dict[tuple[object, ...], _native.RangeStruct] = {}
    for buffer in buffers:
        view = buffer.view
        if not view.size:
            continue
        key = (view.start, view.size, view.element, view.sizes, view.strides)
        if key not in found:
            found[key] = _range(view)
        found[key].writable |= view.writable
        found[key].undefined &= view.undefined
    return list(found.values())


def _memory(program: Program, packed: Block) -> _Memory:
    memory = _Memory(_merged(packed.buffers))
    for piece in program.image.pieces():
        view = View(piece.address, piece.address, piece.size, piece.writable, origin=program.image.base)
        memory.ranges.append(_range(view))
    return memory


def _config(kernel: Kernel, shape: Shape, run: _Run) -> _native.ConfigStruct:
    skip = PRELOAD_PROLOGUE if kernel.preload and run.preload else 0
    config = _native.ConfigStruct(
        entry=kernel.entry + skip,
        lds_bytes=kernel.lds_bytes + shape.dynamic_lds,
        kernarg_preload=kernel.preload,  # the SGPRs are set aside even when the kernel loads them itself
        checks=run.checks,
        schedule=SCHEDULES[run.schedule],
        seed=run.seed & (1 << 64) - 1,
    )
    for name in (
        "scratch_bytes",
        "vgprs",
        "sgprs",
        "accum_offset",
        "user_sgprs",
        "workgroup_ids",
        "workitem_ids",
    ):
        setattr(config, name, getattr(kernel, name))
    for name in ("quantum", "resident", "threads", "step_limit", "max_reports"):
        setattr(config, name, getattr(run, name))
    config.grid[:] = shape.grid
    config.block[:] = shape.block
    return config


def _run(
    program: Program,
    kernel: Kernel,
    shape: Shape,
    packed: Block,
    run: _Run,
    progress: Progress | None,
    trace: Trace | None,
) -> Result:
    memory = _memory(program, packed)
    config = _config(kernel, shape, run)
    config.kernarg = memory.own(packed.data)
    config.dispatch_packet = memory.own(dispatch_packet(shape, kernel, config.kernarg))
    lib = _native.library()
    handle = ctypes.c_void_p()
    if lib.emu_launch_create(program.handle, ctypes.byref(handle)):
        raise MemoryError("the core could not create a launch")
    try:
        for known in memory.ranges:
            if lib.emu_launch_add_range(handle, ctypes.byref(known)):
                raise MemoryError(f"no memory to watch the {known.bytes} bytes at 0x{known.address:x}")
        watcher = _Watcher(lib, handle, program, trace) if trace else None
        began = time.perf_counter()
        stopped = _call(lib, handle, config, progress)
        seconds = time.perf_counter() - began
        if watcher is not None and watcher.raised is not None:
            raise watcher.raised
        return _gather(lib, handle, program, kernel, shape, packed, run, stopped, seconds)
    finally:
        lib.emu_launch_destroy(handle)


class _Watcher:
    """Hands the core's trace to a Python function, and ends the run when that raises."""

    def __init__(self, lib: ctypes.CDLL, handle: ctypes.c_void_p, program: Program, trace: Trace) -> None:
        self.raised: BaseException | None = None
        self._texts = {inst.pc: inst.text for inst in program.instructions}
        self._trace = trace
        self._stop: Callable[[], object] = lambda: lib.emu_launch_stop(handle)
        self._function = _native.TRACE_FUNCTION(self._see)  # kept alive by this object
        lib.emu_launch_trace(handle, self._function, None)

    def _see(self, _user: object, raw: Any) -> None:  # noqa: ANN401  a ctypes pointer
        if self.raised is not None:
            return
        try:
            step = raw.contents
            self._trace(step_of(step, self._texts[step.pc]))
        except BaseException as error:  # must not pass through the core's frames
            self.raised = error
            self._stop()


def _call(
    lib: ctypes.CDLL, handle: ctypes.c_void_p, config: _native.ConfigStruct, progress: Progress | None
) -> str:
    """Run in another thread, so that this one can be interrupted; returns why it stopped."""
    error = ctypes.create_string_buffer(_native.ERROR_BYTES)
    codes: list[int] = []
    arguments = (handle, ctypes.byref(config), error, len(error))
    worker = threading.Thread(
        target=lambda: codes.append(lib.emu_launch_run(*arguments)), name="rocade-emulator"
    )
    worker.start()
    try:
        while worker.is_alive():
            worker.join(_PROGRESS_SECONDS)
            if progress is not None:
                progress(int(lib.emu_launch_steps(handle)))
    except BaseException:
        lib.emu_launch_stop(handle)  # the core works on this frame's memory: it must end first
        worker.join()
        raise
    if not codes:
        raise RuntimeError("the core did not return")
    return error.value.decode(errors="replace") if codes[0] else ""


def _gather(
    lib: ctypes.CDLL,
    handle: ctypes.c_void_p,
    program: Program,
    kernel: Kernel,
    shape: Shape,
    packed: Block,
    run: _Run,
    stopped: str,
    seconds: float,
) -> Result:
    count = lib.emu_launch_reports(handle, None, 0)
    raw = (_native.ReportStruct * count)()
    lib.emu_launch_reports(handle, raw, count)
    counters = _native.CountersStruct()
    lib.emu_launch_counters(handle, ctypes.byref(counters))
    texts = {inst.pc: inst.text for inst in program.instructions} if count else {}
    return Result(
        program=program.name,
        target=program.target,
        kernel=kernel,
        shape=shape,
        reports=tuple(report_of(r, texts.get(r.pc, "?"), packed.buffers) for r in raw[:count]),
        counters=counters_of(counters),
        seconds=seconds,
        stopped=stopped,
        settings={"schedule": run.schedule, "quantum": run.quantum, "seed": run.seed, "threads": run.threads},
        full=count == run.max_reports,
    )

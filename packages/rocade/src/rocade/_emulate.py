"""`rocade.emulate`: run the GPU kernels on a CPU, instruction by instruction, with every check on."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from arch_caps import target_of
from rocade._emulation import Emulation
from rocade._errors import invalid

ON_REPORT = ("raise", "keep")


def emulate(
    target: str,
    *,
    schedule: str = "round_robin",
    quantum: int = 1,
    seed: int = 0,
    checks: str | Iterable[str] = "all",
    threads: int = 1,
    on_report: str = "raise",
) -> Emulation:
    """Let CPU tensors stand for those of an AMD GPU, whose machine code runs in the emulator.

    Inside the context every call decides as on that GPU: `backend="auto"` takes what the GPU would, and what
    runs on the GPU's own kernels executes the code that ships for it. A plan keeps the emulation that it was
    made under, whatever is active when it runs; other calls ask what is active in their own thread. Contexts
    nest, and one object may be entered again.

    It finds missing waits, LDS races, accesses out of bounds (by the exact bytes of the tensors given, the
    holes of strided ones included) and uninitialised reads. It is no model of time, and about a million times
    slower than the GPU.

    Args:
        target: the GPU by its architecture, one of `rocade_emulator.TARGETS`.
        schedule: the order in which waves take turns: `"round_robin"`, `"run_to_barrier"` or `"random"`.
        quantum: instructions of a turn; for `"random"`, the most.
        seed: of the random schedule.
        checks: `"all"`, `"none"`, or names of the emulator's checks.
        threads: host threads that run workgroups.
        on_report: `"raise"` makes a finding an `EmulationError` at the call that has it; `"keep"` leaves it
            in `results`.

    Returns:
        An `Emulation`, to be used in a `with` statement. Its `results` grow by one for each launch.

    Raises:
        ImportError: the emulator is not installed.
        ValueError: the target is not emulated, or an argument is malformed.
    """
    try:
        emulator = importlib.import_module("rocade_emulator")
    except ImportError as error:
        raise ImportError(
            "rocade.emulate needs the package rocade-emulator; in a clone of rocade: "
            f"pip install ./packages/emulator ({error})"
        ) from error
    name = target_of(str(target))
    if name not in emulator.TARGETS:
        raise invalid("target", repr(target), "one of " + ", ".join(map(repr, emulator.TARGETS)))
    if schedule not in emulator.SCHEDULES:
        raise invalid("schedule", repr(schedule), "one of " + ", ".join(map(repr, emulator.SCHEDULES)))
    if on_report not in ON_REPORT:
        raise invalid("on_report", repr(on_report), "'raise' or 'keep'")
    if not isinstance(checks, Iterable):
        raise invalid("checks", repr(checks), "'all', 'none', or names of checks")
    asked = checks if isinstance(checks, str) else tuple(checks)
    names = () if asked in ("all", "none") else (asked,) if isinstance(asked, str) else asked
    unknown = [check for check in names if check not in emulator.CHECKS]
    if unknown:
        raise invalid("checks", unknown, "'all', 'none', or names out of " + ", ".join(emulator.CHECKS))
    for what, number in (("quantum", quantum), ("threads", threads)):
        if type(number) is not int or not 0 < number < 1 << 32:
            raise invalid(what, repr(number), "a positive int")
    if type(seed) is not int:
        raise invalid("seed", repr(seed), "an int")
    settings = {"schedule": schedule, "quantum": quantum, "seed": seed, "checks": asked, "threads": threads}
    return Emulation(name, settings, raises=on_report == "raise")

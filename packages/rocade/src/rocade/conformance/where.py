"""Where the grid runs: on a device of this machine, or in the emulator under several schedules."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from arch_caps import ROWS, TARGETS, EvidenceKind, Op, Status, preference, target_of
from rocade import _device, _dispatch
from rocade._emulate import emulate
from rocade._emulation import Emulation
from rocade._place import Place
from rocade._version import __version__
from rocade.conformance import runner
from rocade.conformance.cases import Case
from rocade.conformance.runner import Outcome, Report

DEVICE, EMULATOR = "device", "emulator"
# One turn of each wave after the other in steps of one instruction and of several, the other extreme, and
# chance. A kernel that is right by luck of the order is wrong under one of them.
QUANTA = (1, 16)
RANDOM_QUANTUM = 9


class Where(Protocol):
    """A place to run cases at, and what a record says of it."""

    kind: EvidenceKind
    place: Place

    def backends(self, op: Op) -> list[str]:
        """Those with code for an op that can be tried here, present or not."""

    def run(self, case: Case, backend: str) -> Report:
        """One case."""

    def machine(self) -> str:
        """The machine in words."""


class OnDevice:
    """A CPU or GPU of this machine."""

    kind = EvidenceKind.HARDWARE  # the code under test runs on the very silicon that it is for

    def __init__(self, target: str) -> None:
        """Find the device.

        Raises:
            ValueError: there is none of this target.
        """
        self.device = _find(target)
        self.place = _device.place(self.device)
        self._again = "" if self.device.type == "cpu" else f" --target {target} --on {DEVICE}"

    def backends(self, op: Op) -> list[str]:
        """All that are built."""
        return _built(op, self.place.target)

    def run(self, case: Case, backend: str) -> Report:
        """Run it on the device."""
        return replace(runner.run(case, backend, self.place.target, self.device), where=self._again)

    def machine(self) -> str:
        """The processor's or the GPU's name."""
        return processor() if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)


class OnEmulator:
    """The emulator: each case under three schedules with all checks on, and no finding is let pass."""

    kind = EvidenceKind.EMULATED

    def __init__(self, target: str) -> None:
        """Prepare the schedules.

        Raises:
            ValueError: the target is not emulated.
            ImportError: the emulator is not installed.
        """
        self._schedules = [
            emulate(target, schedule=schedule, on_report="keep")
            for schedule in ("round_robin", "run_to_barrier", "random")
        ]
        self.place = Place(target, emulated=True)
        self._again = f" --target {target} --on {EMULATOR}"

    def backends(self, op: Op) -> list[str]:
        """Those that run GPU kernels; plain tensor code would only run on this machine's CPU."""
        rows = ((name, ROWS[op, name]) for name in _built(op, self.place.target))
        return [name for name, row in rows if row.kernels or row.objects]

    def run(self, case: Case, backend: str) -> Report:
        """Run it under each schedule; the first failure counts."""
        worst, launches = 0.0, 0
        for emulation in self._schedules:
            emulation.results.clear()
            emulation.settings |= _turns(emulation, case)
            with emulation:
                report = runner.run(case, backend, self.place.target)
            launches += len(emulation.results)
            worst = max(worst, report.worst)
            report = _judged(report, emulation)
            report = replace(report, worst=worst, launches=launches, where=self._again)
            if report.outcome is not Outcome.PASSED:
                return report
        return report

    def machine(self) -> str:
        """What the emulator runs on."""
        return f"emulator on {processor()}"


def _turns(emulation: Emulation, case: Case) -> dict[str, Any]:
    """Length of turns and seed for one case, the same ones on every run."""
    if emulation.settings["schedule"] == "random":
        return {"quantum": RANDOM_QUANTUM, "seed": case.index + 1}
    return {"quantum": QUANTA[case.index % len(QUANTA)], "seed": 0}


def _judged(report: Report, emulation: Emulation) -> Report:
    """Failed if there was any finding, a remark too: only a schedule may keep it from being a fault."""
    found = [str(finding) for result in emulation.results for finding in result.reports]
    schedule = ", ".join(f"{name} {emulation.settings[name]}" for name in ("schedule", "quantum", "seed"))
    if report.outcome is Outcome.FAILED:
        return replace(report, detail=f"{report.detail} ({schedule})")
    if report.outcome is Outcome.PASSED and found:
        detail = f"{len(found)} kinds of finding ({schedule}); {found[0]}"
        return replace(report, outcome=Outcome.FAILED, detail=detail)
    return report


def _built(op: Op, target: str) -> list[str]:
    return [
        name
        for name in preference(target)
        if (op, name) in ROWS
        and ROWS[op, name].status is Status.BUILT
        and ROWS[op, name].targets.holds(target, None)
    ]


def _find(target: str) -> torch.device:
    """The first device of this process that is `target`; `ValueError` names those that there are."""
    there = [torch.device("cpu"), *(torch.device("cuda", i) for i in range(torch.cuda.device_count()))]
    found = {_device.target(device): device for device in reversed(there)}
    if target not in found:
        raise ValueError(f"no device here is {target}; there are {', '.join(sorted(found))}")
    return found[target]


def chosen(target: str, on: str | None) -> Where:
    """Where to run: as asked, else on a device, else in the emulator.

    Raises:
        ValueError: the target is unknown, not here, or not emulated.
        ImportError: the emulator is not installed.
    """
    name = target_of(target)
    if name not in TARGETS:
        raise ValueError(f"target {name} is unknown; there are {', '.join(TARGETS)}")
    if on == EMULATOR:
        return OnEmulator(name)
    try:
        return OnDevice(name)
    except ValueError as error:
        if on == DEVICE:
            raise
        try:
            return OnEmulator(name)
        except ValueError as other:
            raise ValueError(f"{error}; {other}") from None


def toolchain(where: Where, backends: list[str]) -> dict[str, str]:
    """Versions that the results depend on."""
    found = {"rocade": __version__, "torch": torch.__version__, "python": platform.python_version()}
    for backend in backends:
        found |= _dispatch.versions(backend, where.place)
    return found


def processor() -> str:
    """This machine's processor in words, without its host name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()

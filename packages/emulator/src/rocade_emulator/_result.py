"""What a launch found and counted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from rocade_emulator import _native
from rocade_emulator._kernarg import Buffer, Shape
from rocade_emulator._metadata import Kernel
from rocade_emulator._targets import Target

# Names of the checks by their bit in the C ABI.
CHECKS = {
    "waits": 1,
    "races": 2,
    "bounds": 4,
    "uninitialised": 8,
    "hazards": 16,
    "alignment": 32,
}
CHECK_NAMES = {bit: name for name, bit in CHECKS.items()}
SEVERITIES = ("info", "error")
_SHOWN = 20  # findings in an error's text


@dataclass(frozen=True, slots=True)
class Report:
    """One finding: which check, where it was first seen, and how often.

    `lane` is -1 for the whole wave. `address` is a memory address, an LDS byte address, or the number of a
    register, as `detail` says; `where` names the argument that a memory address lies in or next to.
    """

    check: str
    severity: str
    pc: int
    instruction: str
    group: tuple[int, int, int]
    wave: int
    lane: int
    address: int
    count: int
    detail: str
    where: str = ""

    def __str__(self) -> str:
        lane = "" if self.lane < 0 else f", lane {self.lane}"
        where = f", address 0x{self.address:x}" + (f" ({self.where})" if self.where else "")
        if self._of_registers:
            where = ""  # the detail names them
        times = f", seen {self.count} times" if self.count > 1 else ""
        return (
            f"{self.severity} [{self.check}] pc 0x{self.pc:x} `{self.instruction}`: {self.detail}"
            f"{where}, workgroup {self.group}, wave {self.wave}{lane}{times}"
        )

    @property
    def _of_registers(self) -> bool:
        return self.check == "hazards" or "regist" in self.detail or "into it is in flight" in self.detail


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals over all waves. Cycles are issue clocks of a model, bytes are as requested.

    `cache_lines` counts the 128-byte lines that memory instructions touched, each instruction by itself;
    `cache_lines_ideal` is what the same bytes would take if they lay side by side. `bytes_arguments` are
    scalar loads of the argument block and the dispatch packet; they are in no other figure.
    """

    instructions: int
    by_unit: dict[str, int]
    mfma_cycles: int
    valu_cycles: int
    trans_cycles: int
    salu_cycles: int
    lds_cycles: int
    lds_ideal_cycles: int
    bytes_read: int
    bytes_written: int
    bytes_arguments: int
    cache_lines: int
    cache_lines_ideal: int
    waves: int
    groups: int


class EmulationError(RuntimeError):
    """A launch that stopped early, or one whose checks found errors. `result` holds all that is known."""

    def __init__(self, text: str, result: Result) -> None:
        super().__init__(text)
        self.result = result


@dataclass(frozen=True, slots=True)
class Result:
    """A launch that is over. `stopped` says why it stopped early; it is empty otherwise."""

    program: str
    target: Target
    kernel: Kernel
    shape: Shape
    reports: tuple[Report, ...]
    counters: Counters
    seconds: float
    stopped: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    full: bool = False  # as many kinds of finding as `max_reports` keeps

    @property
    def errors(self) -> tuple[Report, ...]:
        """The findings that are faults of the kernel; the others are remarks."""
        return tuple(report for report in self.reports if report.severity == "error")

    @property
    def ok(self) -> bool:
        """Whether it ran to the end without a fault."""
        return not self.stopped and not self.errors

    def check(self) -> Result:
        """This result, when it is `ok`.

        Raises:
            EmulationError: it is not. The text lists the faults.
        """
        if self.ok:
            return self
        raise EmulationError(self.describe(), self)

    def describe(self) -> str:
        """What happened, in words: why it stopped and what was found."""
        head = f"{self.kernel.name} on {self.target.name}, grid {self.shape.grid}, block {self.shape.block}"
        lines = [f"{head}: {len(self.errors)} kinds of fault" + (", stopped early" if self.stopped else "")]
        if self.stopped:
            lines.append(f"  stopped: {self.stopped}")
        lines += [f"  {report}" for report in self.reports[:_SHOWN]]
        if len(self.reports) > _SHOWN:
            lines.append(f"  and {len(self.reports) - _SHOWN} more")
        if self.full:
            lines.append("  no more than these were kept (max_reports); there may be others")
        return "\n".join(lines)

    def report(self) -> str:
        """A table of what was counted, occupancy and the bound; see `rocade_emulator._report`."""
        from rocade_emulator import _report

        return _report.table(self)

    def json(self, indent: int | None = None) -> str:
        """Everything that `report` shows and all findings, as JSON."""
        from rocade_emulator import _report

        return json.dumps(_report.data(self), indent=indent)


def counters_of(raw: _native.CountersStruct) -> Counters:
    """The counters of the C ABI."""
    values = {name: int(getattr(raw, name)) for name in _native.COUNTER_FIELDS}
    by_unit = dict(zip(_native.UNITS, map(int, raw.by_unit), strict=True))
    return Counters(instructions=int(raw.instructions), by_unit=by_unit, **values)


def report_of(raw: _native.ReportStruct, instruction: str, buffers: list[Buffer]) -> Report:
    """A report of the C ABI, with the instruction's text and the argument that its address belongs to."""
    return Report(
        check=CHECK_NAMES[raw.check],
        severity=SEVERITIES[raw.severity],
        pc=raw.pc,
        instruction=instruction,
        group=tuple(raw.group),
        wave=raw.wave,
        lane=raw.lane,
        address=raw.address,
        count=raw.count,
        detail=raw.text.decode(errors="replace"),
        where=_where(raw.address, buffers),
    )


_NEAR = 1 << 20  # bytes from a buffer that still say which one was meant


def _where(address: int, buffers: list[Buffer]) -> str:
    """In words: inside which buffer an address lies, or how far from the nearest one."""
    if buffers and (inside := [b for b in buffers if 0 <= address - b.view.start < b.view.size]):
        # Of several, the one that has the byte: the others may have a hole there.
        best_of = min(inside, key=lambda b: (not b.view.covers(address), b.view.size))
        hole = "" if best_of.view.covers(address) else ", in a hole between its elements"
        return f"byte {address - best_of.view.start} of {best_of.label}{hole}"
    best, found = _NEAR, ""
    for buffer in buffers:
        start, end = buffer.view.start, buffer.view.start + buffer.view.size
        distance = start - address if address < start else address - end + 1
        if distance < best:
            best = distance
            side = (
                f"{start - address} bytes before"
                if address < start
                else f"{address - end} bytes past the end of"
            )
            found = f"{side} {buffer.label}"
    return found


def as_dict(report: Report) -> dict[str, Any]:
    """A report for JSON."""
    return asdict(report)

"""What a traced instruction did, in Python's types and as a line of text."""

from __future__ import annotations

from dataclasses import dataclass

from rocade_emulator import _native
from rocade_emulator._targets import WAVE_LANES

_ACC = 256  # index of a0 in the unified vector registers
_NAMED_SCALARS = {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi"}
_SHOWN = 4  # lanes of a line


@dataclass(frozen=True, slots=True)
class Step:
    """One executed instruction. `exec` is the lane mask that it ran under.

    `results` holds, for each register of the destination, its name and its new value: 64 words in lane order
    for a vector register, one for a scalar one. What a load fetched is there at once, though a kernel must
    wait for it.
    """

    group: tuple[int, int, int]
    wave: int
    pc: int
    instruction: str
    exec: int
    results: dict[str, tuple[int, ...]]

    def line(self, lanes: int = _SHOWN) -> str:
        """One line of text, with the first lanes of vector results."""
        place = f"{','.join(map(str, self.group))} w{self.wave} {self.pc:6x}"
        return f"{place}  {self.instruction:52} {_results(self.results, lanes)}".rstrip()


def _results(results: dict[str, tuple[int, ...]], lanes: int) -> str:
    words = []
    for name, values in results.items():
        shown = " ".join(f"{value:08x}" for value in values[:lanes])
        words.append(f"{name}={shown}" + (" .." if len(values) > lanes else ""))
    return "; ".join(words)


def _scalar_name(code: int) -> str:
    return _NAMED_SCALARS.get(code, f"s{code}")


def step_of(raw: _native.TraceStruct, instruction: str) -> Step:
    """A record of the C ABI; its values are copied."""
    results: dict[str, tuple[int, ...]] = {}
    for k in range(raw.count):
        index = raw.first + k
        if raw.kind == 1:
            name = f"a{index - _ACC}" if index >= _ACC else f"v{index}"
            results[name] = tuple(raw.values[k * WAVE_LANES : (k + 1) * WAVE_LANES])
        elif raw.kind == 2:
            results[_scalar_name(index)] = (raw.values[k],)
    return Step(tuple(raw.group), raw.wave, raw.pc, instruction, raw.exec, results)

"""How a GPU is timed: device events around work, CPU time of enqueueing it, and graphs of many calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from arch_caps import TARGETS
from rocade import _device
from rocade.bench._timing import Call

# A kernel that waits this long is put before a replay, so that the CPU has enqueued everything by the time
# the first event is reached. About 100 us on today's chips.
HOLD_CYCLES = 200_000


class Clock(Protocol):
    """What the GPU bench measures with. Tests give it a fake."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of the last-level cache."""

    def replay(self, call: Call, turn: int) -> float:
        """Device seconds of work that the CPU enqueues in no time, such as a graph's replay."""

    def eager(self, call: Call, turn: int) -> float:
        """Device seconds from the start of the work to its end, the waits for the CPU included."""

    def host(self, call: Call, turn: int) -> float:
        """CPU seconds of enqueueing the work on an idle device."""

    def wait(self) -> None:
        """Return when the device has nothing to do."""

    def capture(self, work: Callable[[], object]) -> Call:
        """A graph of what `work` enqueues; calling it replays the graph. Results of `work` stay in place."""


def last_level_bytes(target: str, l2_bytes: int) -> int:
    """Bytes that a read may find on the chip; on some, a cache behind the L2 holds many times more."""
    facts = TARGETS.get(target)
    known = [sku.last_level_cache_mib or 0 for sku in facts.skus] if facts else []
    return max(l2_bytes, max(known, default=0) << 20)


@dataclass(slots=True)
class DeviceClock:
    """Clock of a CUDA or ROCm device, through torch."""

    device: torch.device

    @property
    def cache_bytes(self) -> int:
        """The L2 that torch reports, or the table's last-level cache where that is larger."""
        found = int(torch.cuda.get_device_properties(self.device).L2_cache_size)
        return last_level_bytes(_device.target(self.device), found)

    def replay(self, call: Call, turn: int) -> float:
        """Seconds between two events, enqueued behind a waiting kernel."""
        return self._between(call, turn, hold=True)

    def eager(self, call: Call, turn: int) -> float:
        """Seconds between two events on a device that has nothing else to do."""
        return self._between(call, turn, hold=False)

    def _between(self, call: Call, turn: int, *, hold: bool) -> float:
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self.device)
        if hold:
            torch.cuda._sleep(HOLD_CYCLES)  # type: ignore[no-untyped-call]
        start.record()
        call(turn)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def host(self, call: Call, turn: int) -> float:
        """Seconds of the CPU; the device's queue must be long enough for the calls of one turn."""
        torch.cuda.synchronize(self.device)
        start = time.perf_counter()
        call(turn)
        spent = time.perf_counter() - start
        torch.cuda.synchronize(self.device)
        return spent

    def wait(self) -> None:
        """Synchronise."""
        torch.cuda.synchronize(self.device)

    def capture(self, work: Callable[[], object]) -> Call:
        """Warm up on the stream that captures, then capture.

        Twice, and apart: a single call may read a list that is known to have arrived, as the second learns.
        """
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        for _ in range(2):
            with torch.cuda.stream(stream):
                work()
            torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept = work()
        del kept  # its memory belongs to the graph
        return lambda _turn: graph.replay()

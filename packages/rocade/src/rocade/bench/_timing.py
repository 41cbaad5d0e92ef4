"""Interleaved timing: contenders take turns in every round, so that drift of a shared machine hits all alike.

A ratio is the median of the rounds' own ratios, not a quotient of medians from different minutes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

MIN_ROUNDS = 5
MAX_ROUNDS = 60

Call = Callable[[int], object]
Timer = Callable[[Call, int], float]  # seconds of one call on the buffers of one turn


@dataclass(slots=True)
class Samples:
    """Seconds per call of every contender, by round. A contender that sat a round out has None there."""

    rounds: list[dict[str, float]] = field(default_factory=list)

    def times(self, name: str) -> list[float]:
        """All samples of one contender."""
        return [r[name] for r in self.rounds if name in r]

    def median(self, name: str) -> float:
        """Median seconds a call."""
        return statistics.median(self.times(name))

    def ratio(self, slower: str, faster: str) -> float:
        """Median over rounds of `time[slower] / time[faster]`: how many times faster `faster` is."""
        pairs = [r[slower] / r[faster] for r in self.rounds if slower in r and faster in r]
        return statistics.median(pairs)

    def fastest(self, names: Sequence[str]) -> str:
        """The contender with the lowest median."""
        return min(names, key=self.median)


def once(call: Call, turn: int) -> float:
    """Seconds of one call on the buffers of this turn."""
    start = time.perf_counter()
    call(turn)
    return time.perf_counter() - start


def compete(
    calls: Mapping[str, Call],
    *,
    budget_s: float = 4.0,
    min_rounds: int = MIN_ROUNDS,
    sparing: Sequence[str] = (),
    timer: Timer = once,
) -> Samples:
    """Time all contenders round by round for about `budget_s` seconds, after one warm-up call each.

    A call gets its turn number and picks its buffers from it. Contenders named in `sparing` are slow ones:
    they sit out once they have used up half of the budget. `timer` says what a call's seconds are.
    """
    spent = {name: timer(call, 0) for name, call in calls.items()}
    round_s = sum(t for name, t in spent.items() if name not in sparing)
    count = max(min_rounds, min(MAX_ROUNDS, int(budget_s / max(round_s, 1e-6))))
    samples = Samples()
    used = dict.fromkeys(calls, 0.0)
    for turn in range(1, count + 1):
        row: dict[str, float] = {}
        order = list(calls)[:: 1 if turn % 2 else -1]
        for name in order:
            if name in sparing and turn > 1 and used[name] > budget_s / 2:
                continue
            row[name] = timer(calls[name], turn)
            used[name] += row[name]
        samples.rounds.append(row)
    return samples

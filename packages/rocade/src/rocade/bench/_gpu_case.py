"""One case of `rocade bench gpu`: contenders timed as graph replay, eagerly and on the CPU; floors judged.

All contenders of a case do the same work on the same rotating buffer sets and move the same bytes. `copy` is
a device copy of as many bytes, read and written together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rocade.bench._gpu_clock import Clock
from rocade.bench._gpu_peer import NAME as PEER
from rocade.bench._report import Report
from rocade.bench._timing import Call, Samples, compete

OURS = "rocade"
COPY = "copy"
CACHES = 4  # buffer sets together are at least this many times the last-level cache
MAX_SETS = 2048
GRAPH_CALLS = 20  # at least, in one graph
EAGER_CALLS = 50
HOST_CALLS = 200
EAGER_BYTES = 64 << 20  # what is larger keeps the GPU busy for longer than a call takes the CPU
HOST_BYTES = 256 << 20  # larger calls fill the device's queue, so that enqueueing them waits
ROUNDS = 15
BUDGET_S = 0.4  # for each of the three ways of timing


@dataclass(frozen=True, slots=True)
class Floors:
    """What one case promises, as ratios; None promises nothing. FlashInfer's fastest judged kernel counts."""

    peer: float | None = None  # graph replay, FlashInfer's time over ours
    copy: float | None = None  # graph replay, the copy's time over ours
    eager: float | None = None  # FlashInfer's time over ours, of calls that move up to EAGER_BYTES
    host_us: float | None = None  # CPU microseconds of our call, at most


@dataclass(frozen=True, slots=True)
class Case:
    """A name, bytes moved by one call, the number of buffer sets, and the floors."""

    name: str
    moved: int
    sets: int
    floors: Floors
    flops: float = 0.0  # of one call; then rates are shown as TFLOP/s, not TB/s
    unjudged: tuple[str, ...] = ()  # rivals that are shown only

    def rate(self, seconds: float) -> tuple[str, float]:
        """What a call of so many seconds achieves: unit and figure."""
        if self.flops:
            return "TFLOP/s", self.flops / seconds / 1e12
        return "TB/s", self.moved / seconds / 1e12


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds a call."""

    graph: Samples
    eager: Samples
    host: Samples | None


def buffer_sets(moved: int, cache_bytes: int) -> int:
    """How many sets of buffers must rotate so that none is found in the cache; at least two."""
    return max(2, min(MAX_SETS, -(-CACHES * cache_bytes // moved)))


def calls_a_graph(sets: int) -> int:
    """Whole rotations over all sets, and at least GRAPH_CALLS calls."""
    return sets * -(-GRAPH_CALLS // sets)


def repeated(call: Call, count: int) -> Callable[[int], list[object]]:
    """`count` calls on the sets that follow the turn's first; results are kept, each in its own memory."""
    return lambda turn: [call(turn * count + i) for i in range(count)]


def dropped(call: Call, count: int) -> Call:
    """`count` calls whose results are let go at once, as in a program's loop."""

    def run(turn: int) -> None:
        for i in range(count):
            call(turn * count + i)

    return run


def time_all(clock: Clock, calls: Mapping[str, Call], case: Case) -> Timings:
    """Time all contenders in turns, three ways."""
    count = calls_a_graph(case.sets)
    rounds = {"budget_s": BUDGET_S, "min_rounds": ROUNDS}
    graphs = {name: _captured(clock, repeated(call, count)) for name, call in calls.items()}
    graph = compete(graphs, timer=clock.replay, **rounds)  # type: ignore[arg-type]
    loops = {name: dropped(call, EAGER_CALLS) for name, call in calls.items()}
    eager = compete(loops, timer=clock.eager, **rounds)  # type: ignore[arg-type]
    host = None
    if case.moved <= HOST_BYTES:
        loops = {name: dropped(call, HOST_CALLS) for name, call in calls.items()}
        host = _each(compete(loops, timer=clock.host, **rounds), HOST_CALLS)  # type: ignore[arg-type]
    return Timings(_each(graph, count), _each(eager, EAGER_CALLS), host)


def _captured(clock: Clock, run: Callable[[int], list[object]]) -> Call:
    return clock.capture(lambda: run(0))


def _each(samples: Samples, count: int) -> Samples:
    """Samples of one call out of samples of `count`."""
    return Samples([{name: seconds / count for name, seconds in row.items()} for row in samples.rounds])


def bench(report: Report, clock: Clock, case: Case, calls: Mapping[str, Call]) -> Timings:
    """Time a case, print its figures, and judge its floors. `calls` holds OURS and the rivals."""
    timings = time_all(clock, calls, case)
    figures: dict[str, object] = {}
    for name in calls:
        graph = timings.graph.median(name)
        unit, rate = case.rate(graph)
        figures[f"{name} us"] = graph * 1e6
        figures[f"{name} {unit}"] = rate
    for name in calls:
        figures[f"{name} eager us"] = timings.eager.median(name) * 1e6
    for name in calls if timings.host else ():
        figures[f"{name} CPU us"] = timings.host.median(name) * 1e6 if timings.host else None
    report.figure(case.name, **figures, sets=case.sets, rounds=len(timings.graph.rounds))
    _judge(report, case, timings, [n for n in calls if n.startswith(PEER) and n not in case.unjudged])
    return timings


def _judge(report: Report, case: Case, timings: Timings, rivals: Sequence[str]) -> None:
    floors = case.floors
    if floors.copy is not None:
        # Graphs run a large copy in another way: 1 GB took 1.5 times as long as by a plain call, on an H200.
        fastest = min(timings.graph.median(COPY), timings.eager.median(COPY))
        share = fastest / timings.graph.median(OURS)
        report.floor(case.name, "graph, speed against the faster copy", share, floors.copy)
    for way, samples, floor in (
        ("graph", timings.graph, floors.peer),
        ("eager", timings.eager, floors.eager if case.moved <= EAGER_BYTES else None),
    ):
        if rivals and floor is not None:
            best = samples.fastest(rivals)
            report.floor(case.name, f"{way}, speed against {best}", samples.ratio(best, OURS), floor)
    if timings.host and floors.host_us is not None:
        spent = timings.host.median(OURS) * 1e6
        report.floor(case.name, "CPU us", spent, floors.host_us, at_least=False)

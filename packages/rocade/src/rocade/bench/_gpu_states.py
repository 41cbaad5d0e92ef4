"""Merging attention states on a GPU: rocade beside FlashInfer and beside a device copy of the same bytes.

Letters: n rows, S states a row, H heads, D head dims, R rotating buffer sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

import rocade
from arch_caps import DType
from rocade import cascade
from rocade.bench._gpu_case import COPY, OURS, Case, Floors, bench, buffer_sets
from rocade.bench._gpu_clock import Clock
from rocade.bench._gpu_peer import NAME as PEER
from rocade.bench._gpu_peer import Library, Peer
from rocade.bench._report import Report
from rocade.bench._timing import Call
from rocade.conformance import oracle_states, tolerances

HEADS, DIM = 32, 128
SMALL_ROWS = (64, 256, 1024, 4096)
STATE_ROWS = (*SMALL_ROWS, 16384)  # merge_state and merge_state_in_place
TOTAL_ROWS = 65536  # merge_states, rows times states of the large cases
STATES = (4, 16, 64)
NO_ROW_BELOW = 0.97  # of FlashInfer's speed, any row count
LARGE = {"merge_state": 1.0, "merge_state_in_place": 1.0, "merge_states": 1.05}
COPY_SHARE = 0.95  # of a copy's speed, large cases
EAGER = 1.0  # small calls called eagerly, against FlashInfer
# Relative norm of the rival's error: far above rounding, far below any real mistake.
PEER_ERROR = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
TABLE_DTYPES = {torch.float16: DType.FP16, torch.bfloat16: DType.BF16, torch.float32: DType.FP32}
CHUNK_BYTES = 512 << 20  # fp64 values that the check holds at once

State = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    """`states` is 2 for the functions that merge two given states."""

    op: str
    rows: int
    states: int
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """Name in the report."""
        kind = str(self.dtype).removeprefix("torch.")
        many = f" x {self.states} states" if self.op == "merge_states" else ""
        return f"{self.op} {kind} {self.rows}{many} x {HEADS} x {DIM}"

    @property
    def moved(self) -> int:
        """Bytes that one call must read and write."""
        row = HEADS * (DIM * self.dtype.itemsize + 4)
        return (self.states + 1) * self.rows * row

    @property
    def large(self) -> bool:
        """Whether the floors for large cases hold."""
        return self.rows * self.states >= 2 * max(STATE_ROWS)

    @property
    def floors(self) -> Floors:
        """Large cases promise bandwidth; small ones promise a cheap call, too."""
        if self.large:
            return Floors(peer=LARGE[self.op], copy=COPY_SHARE)
        return Floors(peer=NO_ROW_BELOW, eager=EAGER)


def shapes(op: str, dtype: torch.dtype) -> list[Shape]:
    """All cases of an op."""
    if op != "merge_states":
        return [Shape(op, rows, 2, dtype) for rows in STATE_ROWS]
    return [
        Shape(op, rows, states, dtype)
        for states in STATES
        for rows in sorted({*SMALL_ROWS, TOTAL_ROWS // states})
        if rows * states <= TOTAL_ROWS
    ]


def bench_states(
    report: Report, clock: Clock, peer: Peer, op: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Every case of merge_state, merge_state_in_place or merge_states: check, then time."""
    for shape in shapes(op, dtype):
        sets = buffer_sets(shape.moved, clock.cache_bytes)
        work = _WORK[op](shape, sets, device)
        calls: dict[str, Call] = {OURS: work.calls(rocade if op != "merge_states" else cascade)}
        if peer.present:
            calls[PEER] = work.calls(peer.module)
        check(report, shape, work, peer)
        calls[COPY] = copies(shape.moved, sets, device)
        bench(report, clock, Case(shape.name, shape.moved, sets, shape.floors), calls)


def copies(moved: int, sets: int, device: torch.device) -> Call:
    """Device copies that read and write `moved` bytes together, over rotating buffers."""
    half = moved // 2
    source = torch.randint(0, 256, (sets, half), dtype=torch.uint8, device=device)
    pairs = list(zip(torch.empty_like(source), source, strict=True))

    def call(turn: int) -> None:
        target, given = pairs[turn % sets]
        target.copy_(given)

    return call


def _random_state(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> State:
    v = torch.randn(*shape, HEADS, DIM, device=device, dtype=dtype)
    return v, torch.randn(*shape, HEADS, device=device) * 3


class TwoStates:
    """merge_state: R pairs of states."""

    def __init__(self, shape: Shape, sets: int, device: torch.device) -> None:
        self.a = [_random_state((shape.rows,), shape.dtype, device) for _ in range(sets)]
        self.b = [_random_state((shape.rows,), shape.dtype, device) for _ in range(sets)]

    def calls(self, library: Library) -> Call:
        """The library's merge_state on the pair of a turn."""
        merge: Callable[..., State] = library.merge_state
        pairs = [(*a, *b) for a, b in zip(self.a, self.b, strict=True)]
        count = len(pairs)
        return lambda turn: merge(*pairs[turn % count])

    def result(self, library: Library) -> State:
        """What the library makes of the first pair."""
        merged: State = self.calls(library)(0)  # type: ignore[assignment]
        return merged

    def stacked(self, rows: slice) -> State:
        """Rows of the first pair as `v [n, S, H, D]`, `s [n, S, H]`."""
        (v_a, s_a), (v_b, s_b) = self.a[0], self.b[0]
        return torch.stack((v_a[rows], v_b[rows]), 1), torch.stack((s_a[rows], s_b[rows]), 1)


class InPlace(TwoStates):
    """merge_state_in_place: the first state of a pair is written; time after time its s grows a little."""

    def calls(self, library: Library) -> Call:
        """The library's merge_state_in_place on the pair of a turn."""
        return self._into(library, self.a)

    def _into(self, library: Library, states: list[State]) -> Call:
        merge: Callable[..., None] = library.merge_state_in_place
        pairs = [(*a, *b) for a, b in zip(states, self.b, strict=True)]
        count = len(pairs)
        return lambda turn: merge(*pairs[turn % count])

    def result(self, library: Library) -> State:
        """What the library makes of a copy of the first pair."""
        v, s = (x.clone() for x in self.a[0])
        library.merge_state_in_place(v, s, *self.b[0])
        return v, s


class ManyStates:
    """merge_states: R arrays of S states a row."""

    def __init__(self, shape: Shape, sets: int, device: torch.device) -> None:
        self.given = [_random_state((shape.rows, shape.states), shape.dtype, device) for _ in range(sets)]

    def calls(self, library: Library) -> Call:
        """The library's merge_states on the array of a turn."""
        merge: Callable[..., State] = library.merge_states
        given, count = self.given, len(self.given)
        return lambda turn: merge(*given[turn % count])

    def result(self, library: Library) -> State:
        """What the library makes of the first array."""
        merged: State = self.calls(library)(0)  # type: ignore[assignment]
        return merged

    def stacked(self, rows: slice) -> State:
        """Rows of the first array."""
        v, s = self.given[0]
        return v[rows], s[rows]


Work = TwoStates | ManyStates
_WORK: dict[str, Callable[[Shape, int, torch.device], Work]] = {
    "merge_state": TwoStates,
    "merge_state_in_place": InPlace,
    "merge_states": ManyStates,
}


def check(report: Report, shape: Shape, work: Work, peer: Peer) -> None:
    """Hold ours to the grid's tolerance and the rival to a wide one, every row, against fp64."""
    ours = work.result(rocade)
    theirs = work.result(peer.module) if peer.present else None
    worst, error, norm = 0.0, 0.0, 0.0
    step = max(1, CHUNK_BYTES // (8 * (shape.states + 1) * HEADS * DIM))
    for first in range(0, shape.rows, step):
        rows = slice(first, first + step)
        with ours[0].device:
            reference = oracle_states.merge_states(*work.stacked(rows))
        allowed = tolerances.merge(reference, TABLE_DTYPES[shape.dtype])
        got = (ours[0][rows], ours[1][rows])
        worst = max(worst, excess(got, (reference.v, reference.s), allowed))
        if theirs is not None:
            error += float((theirs[0][rows] - reference.v).square().sum())
            error += float((theirs[1][rows] - reference.s).square().sum())
            norm += float(reference.v.square().sum())
    report.wrong(f"{shape.name}, {OURS} against fp64, share of the tolerance", worst, 1.0)
    if theirs is not None:
        text = f"{shape.name}, {PEER} against fp64, relative norm"
        report.wrong(text, (error / norm) ** 0.5, PEER_ERROR[shape.dtype])


def excess(got: State, reference: State, allowed: State) -> float:
    """Worst error as a multiple of what is allowed; NaN counts as infinite."""
    worst = 0.0
    for x, expected, limit in zip(got, reference, allowed, strict=True):
        error = (x - expected).abs()
        ratio = torch.where(error == 0, 0.0, error / limit).nan_to_num(nan=float("inf"), posinf=float("inf"))
        worst = max(worst, float(ratio.max()))
    return worst

"""The GPU bench without a GPU: what it times, checks and promises, on a clock that a test sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import rocade
from rocade.bench import (
    _attention_host,
    _gpu_append,
    _gpu_case,
    _gpu_clock,
    _gpu_decode,
    _gpu_peer,
    _gpu_prefill,
    _gpu_states,
    gpu,
)
from rocade.bench._gpu_case import COPY, OURS, Case, Floors
from rocade.bench._gpu_peer import NAME as PEER
from rocade.bench._gpu_peer import Peer
from rocade.bench._report import Report
from rocade.bench._timing import Call
from rocade.bench._workload import Heads

CPU = torch.device("cpu")
ABSENT = Peer(None, "FlashInfer absent (test)")


class FakeClock:
    """Time passes only when a contender says so; graphs run their calls again."""

    cache_bytes = 1 << 20

    def __init__(self) -> None:
        self.waits = 0
        self.now = 0.0
        self.captured = 0

    def replay(self, call: Call, turn: int) -> float:
        start = self.now
        call(turn)
        return self.now - start or 1e-6  # real contenders cost nothing here

    eager = host = replay

    def wait(self) -> None:
        self.waits += 1

    def capture(self, work: Callable[[], object]) -> Call:
        self.captured += 1
        return lambda _turn: work()

    def costing(self, seconds: float, seen: list[int] | None = None) -> Call:
        def call(turn: int) -> None:
            self.now += seconds
            if seen is not None:
                seen.append(turn)

        return call


def merged(scale: float = 1.0) -> Peer:
    """A rival that answers like rocade, times `scale`."""
    honest = rocade.merge_state  # bound now, since a test may replace it

    def merge(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        v, s = honest(*given)
        return v * scale, s

    return Peer(SimpleNamespace(merge_state=merge), "FlashInfer (test)")


def bench_case(clock: FakeClock, floors: Floors, **seconds: float) -> Report:
    report = Report()
    calls = {name: clock.costing(cost) for name, cost in seconds.items()}
    _gpu_case.bench(report, clock, Case("case", 1 << 20, 3, floors), calls)
    return report


@pytest.mark.parametrize("moved", [1, 1 << 10, 1 << 20, 1 << 30])
def test_buffers_rotate_through_several_caches_and_graphs_hold_twenty_calls(moved: int) -> None:
    sets = _gpu_case.buffer_sets(moved, FakeClock.cache_bytes)
    calls = _gpu_case.calls_a_graph(sets)
    assert sets >= 2
    assert sets * moved >= 4 * FakeClock.cache_bytes or sets == _gpu_case.MAX_SETS
    assert calls >= 20
    assert calls % sets == 0


@pytest.mark.parametrize(
    ("target", "reported_mib", "expected_mib"), [("gfx942", 4, 256), ("sm_90", 60, 60), ("sm_999", 7, 7)]
)
def test_a_cache_behind_the_l2_counts(target: str, reported_mib: int, expected_mib: int) -> None:
    assert _gpu_clock.last_level_bytes(target, reported_mib << 20) == expected_mib << 20


def test_every_way_of_timing_gives_seconds_of_one_call_and_visits_every_set() -> None:
    clock, seen = FakeClock(), []
    calls = {OURS: clock.costing(3e-6, seen), COPY: clock.costing(2e-6)}
    timings = _gpu_case.time_all(clock, calls, Case("case", 1, 7, Floors()))
    assert timings.host is not None
    for samples in (timings.graph, timings.eager, timings.host):
        assert samples.median(OURS) == pytest.approx(3e-6)
        assert samples.ratio(OURS, COPY) == pytest.approx(1.5)
        assert len(samples.rounds) >= _gpu_case.ROUNDS
    assert {turn % 7 for turn in seen} == set(range(7))
    assert clock.captured == 2


def test_cpu_time_is_left_out_where_calls_would_fill_the_queue() -> None:
    clock = FakeClock()
    case = Case("case", _gpu_case.HOST_BYTES + 1, 2, Floors())
    assert _gpu_case.time_all(clock, {OURS: clock.costing(1e-3)}, case).host is None


@pytest.mark.parametrize(("ours", "met"), [(1.0e-5, True), (1.2e-5, False)])
def test_floors_compare_with_the_copy_and_the_rival(ours: float, met: bool) -> None:
    floors = Floors(peer=0.97, copy=0.95, eager=1.0)
    report = bench_case(FakeClock(), floors, **{OURS: ours, COPY: 1e-5, PEER: 1e-5})
    assert [floor.met for floor in report.floors] == [met] * 3


def test_eager_floors_are_for_calls_that_the_cpu_limits() -> None:
    clock, report = FakeClock(), Report()
    calls = {OURS: clock.costing(1e-4), COPY: clock.costing(1e-4), PEER: clock.costing(1e-4)}
    case = Case("case", _gpu_case.EAGER_BYTES + 1, 3, Floors(peer=0.97, eager=1.0))
    _gpu_case.bench(report, clock, case, calls)
    assert [floor.what for floor in report.floors] == [f"graph, speed against {PEER}"]


def test_without_the_rival_only_the_copy_is_judged() -> None:
    report = bench_case(FakeClock(), Floors(peer=1.0, copy=0.95, eager=1.0), **{OURS: 1e-5, COPY: 1e-5})
    assert [floor.what for floor in report.floors] == ["graph, speed against the faster copy"]


def test_the_fastest_judged_rival_counts_and_the_unjudged_is_only_shown() -> None:
    clock, report = FakeClock(), Report()
    seconds = {OURS: 1e-5, f"{PEER} a": 2e-5, f"{PEER} b": 1.1e-5, f"{PEER} c": 1e-7}
    calls = {name: clock.costing(cost) for name, cost in seconds.items()}
    case = Case("case", 1 << 20, 3, Floors(peer=1.0, host_us=5.0), flops=1e8, unjudged=(f"{PEER} c",))
    _gpu_case.bench(report, clock, case, calls)
    assert [(floor.what, floor.met) for floor in report.floors] == [
        (f"graph, speed against {PEER} b", True),
        ("CPU us", False),
    ]
    assert report.figures[0][f"{OURS} TFLOP/s"] == pytest.approx(10.0)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("part", ["decode", "prefill"])
def test_attention_that_answers_wrong_voids_the_run(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rocade.single_prefill_with_kv_cache
    run = rocade.BatchDecodeWithPagedKVCacheWrapper.run

    def wrong(result: object) -> object:
        return (result[0] * 1.01, result[1]) if isinstance(result, tuple) else result

    monkeypatch.setattr(rocade, "single_prefill_with_kv_cache", lambda *a, **k: wrong(honest(*a, **k)))
    monkeypatch.setattr(rocade.BatchDecodeWithPagedKVCacheWrapper, "run", lambda *a, **k: wrong(run(*a, **k)))
    report = Report()
    gpu.run(report, FakeClock(), ABSENT, CPU, parts=[part], dtypes=[torch.float16])
    assert report.errors
    assert all(part in error for error in report.errors)


def test_figures_hold_time_and_bandwidth() -> None:
    (row,) = bench_case(FakeClock(), Floors(), **{OURS: 1e-6, COPY: 2e-6}).figures
    assert row[f"{OURS} us"] == pytest.approx(1.0)
    assert row[f"{OURS} TB/s"] == pytest.approx((1 << 20) / 1e-6 / 1e12)
    assert row[f"{COPY} CPU us"] == pytest.approx(2.0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases that a CPU does in no time, the same code otherwise."""
    for name, value in (("HEADS", 2), ("DIM", 16), ("STATE_ROWS", (3, 8)), ("SMALL_ROWS", (3,))):
        monkeypatch.setattr(_gpu_states, name, value)
    monkeypatch.setattr(_gpu_states, "TOTAL_ROWS", 64)
    monkeypatch.setattr(_gpu_states, "CHUNK_BYTES", 1 << 12)  # several chunks
    monkeypatch.setattr(_gpu_append, "SHAPES", ((3, 21, 1), (2, 0, 40)))
    monkeypatch.setattr(_gpu_case, "MAX_SETS", 3)
    monkeypatch.setattr(_gpu_case, "BUDGET_S", 0.0)
    monkeypatch.setattr(_gpu_case, "ROUNDS", 1)
    heads = Heads(4, 2, 64)
    small = (_gpu_decode.Shape(2, 40, heads), _gpu_decode.Shape(1, 16, Heads(2, 2, 64)))
    monkeypatch.setattr(_gpu_decode, "SHAPES", small)
    monkeypatch.setattr(_gpu_prefill, "LLAMA_HEADS", heads)
    monkeypatch.setattr(_gpu_prefill, "FLOORS", {24: 1.0})
    monkeypatch.setattr(_gpu_prefill, "CHECKED_ROWS", 8)
    for name, value in {"BATCHES": (2,), "WARM": 0, "CALLS": 3, "WORKSPACE": 1 << 20, "KV_LEN": 32}.items():
        monkeypatch.setattr(_attention_host, name, value)
    for name in ("EAGER_CALLS", "HOST_CALLS", "GRAPH_CALLS"):
        monkeypatch.setattr(_gpu_case, name, 2)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_part_checks_right_results_as_right(dtype: torch.dtype) -> None:
    report = Report()
    clock = FakeClock()
    gpu.run(report, clock, ABSENT, CPU, parts=gpu.PARTS, dtypes=[dtype])
    assert not report.errors
    names = [str(row["case"]) for row in report.figures]
    assert len(names) == len(set(names)) == 1 + 2 + 2 + 5 + 2 + 2 + 2 + 12
    assert clock.waits == 3 * (3 + 3 + 6) + 3 * 2 * 1


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("scale", "wrong"), [(1.0, False), (1.01, True), (float("nan"), True)])
def test_a_rival_that_answers_wrong_voids_the_run(scale: float, wrong: bool) -> None:
    report = Report()
    _gpu_states.bench_states(report, FakeClock(), merged(scale), "merge_state", torch.float16, CPU)
    assert bool(report.errors) is wrong
    assert all(PEER in error for error in report.errors)


@pytest.mark.usefixtures("tiny")
def test_our_own_wrong_answer_voids_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocade, "merge_state", merged(1.01).module.merge_state)
    report = Report()
    monkeypatch.setattr(_gpu_states, "bench", lambda *_: None)
    _gpu_states.bench_states(report, FakeClock(), ABSENT, "merge_state", torch.float16, CPU)
    assert report.errors
    assert all("share of the tolerance" in error for error in report.errors)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("broken", ["value skipped", "writes beside"])
def test_append_is_held_to_every_bit_of_the_pool(broken: str) -> None:
    work = _gpu_append.Append(_gpu_append.Shape(2, 14, 4, torch.float16), 2, CPU)

    def append(key: torch.Tensor, value: torch.Tensor, *rest: torch.Tensor) -> None:
        if broken == "value skipped":
            rocade.append_paged_kv_cache(key, key, *rest)
        else:
            rocade.append_paged_kv_cache(key, value, *rest)
            rest[2][(rest[3][-1] + 1) % rest[2].shape[0], 0, 0, 0, 0] = 1.0

    assert work.wrong_elements(rocade) == 0
    assert work.wrong_elements(SimpleNamespace(append_paged_kv_cache=append)) > 0


def test_large_cases_promise_bandwidth_and_small_ones_a_cheap_call() -> None:
    for op in gpu.STATE_PARTS:
        shapes = _gpu_states.shapes(op, torch.float16)
        large = [shape for shape in shapes if shape.large]
        assert len(large) == (3 if op == "merge_states" else 1)
        assert all(shape.floors.copy == 0.95 and shape.floors.peer >= 1.0 for shape in large)
        small = [shape for shape in shapes if not shape.large]
        assert all(shape.floors.peer == 0.97 and shape.floors.eager == 1.0 for shape in small)
        assert {64, 256, 1024, 4096} <= {shape.rows for shape in shapes}


def test_bytes_are_counted_once_in_and_once_out() -> None:
    state = 16384 * 32 * (128 * 2 + 4)
    assert _gpu_states.Shape("merge_state", 16384, 2, torch.float16).moved == 3 * state
    assert _gpu_states.Shape("merge_states", 16384, 4, torch.float16).moved == 5 * state
    assert _gpu_append.Shape(1, 0, 1, torch.float16).moved == 2 * 2 * 8 * 128 * 2 + 8


def test_an_absent_rival_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> None:
        raise OSError("libcuda.so.1 not found")

    monkeypatch.setattr(_gpu_peer.importlib, "import_module", fail)
    peer = _gpu_peer.load()
    assert not peer.present
    assert "libcuda.so.1 not found" in peer.text


def test_rocade_under_the_rivals_name_is_no_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_peer.importlib, "import_module", lambda _name: rocade)
    assert not _gpu_peer.load().present


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        gpu.main([])
    assert done.value.code == 2
    assert "no CUDA or ROCm device" in capsys.readouterr().err


def test_the_report_goes_to_json_with_floors_and_verdicts(tmp_path: Path) -> None:
    report = bench_case(FakeClock(), Floors(copy=0.95), **{OURS: 2e-5, COPY: 1e-5})
    assert report.close(tmp_path / "bench.json", "a machine") == 1
    data = json.loads((tmp_path / "bench.json").read_text())
    assert data["machine"] == "a machine"
    assert [floor["met"] for floor in data["floors"]] == [False]

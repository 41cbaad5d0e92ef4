"""The grid: every operation on every backend against the oracle, in chunks that share out over workers.

A failing case prints its repr and a command that runs it alone.
"""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from arch_caps import ROWS, Op, Status, preference
from rocade._device import place
from rocade._dispatch import absent
from rocade.conformance import grid
from rocade.conformance.runner import Outcome, run

CHUNKS = 6
FULL_CHUNKS = 64
BACKENDS = [
    (op, backend)
    for op in Op
    for backend in preference("cpu")
    if (op, backend) in ROWS and ROWS[op, backend].status is Status.BUILT
]


def check(op: Op, backend: str, cases: list[grid.Case]) -> None:
    """Run cases, fail with every one that fails, skip when the table refuses them all."""
    why = absent(backend, place(torch.device("cpu")))
    if why:
        pytest.skip("; ".join(reason.text for reason in why))
    reports = [run(case, backend) for case in cases]
    failures = [str(report) for report in reports if report.outcome is Outcome.FAILED]
    if failures:
        pytest.fail(
            f"{len(failures)} of {len(reports)} cases failed\n" + "\n".join(failures[:10]), pytrace=False
        )
    if all(report.outcome is Outcome.REFUSED for report in reports):
        pytest.skip(reports[0].detail)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize(("op", "backend"), BACKENDS)
def test_grid(op: Op, backend: str, chunk: int) -> None:
    check(op, backend, grid.cases(op)[chunk::CHUNKS])


@pytest.mark.full
@pytest.mark.parametrize("chunk", range(FULL_CHUNKS))
@pytest.mark.parametrize(("op", "backend"), [pair for pair in BACKENDS if pair[0].is_attention])
def test_full_grid(op: Op, backend: str, chunk: int) -> None:
    check(op, backend, list(islice(grid.full(op), chunk, None, FULL_CHUNKS)))


@pytest.mark.parametrize("op", list(Op))
def test_the_plain_backend_refuses_nothing(op: Op) -> None:
    reports = [run(case, "torch") for case in grid.cases(op)[::17]]
    assert [r.detail for r in reports if r.outcome is Outcome.REFUSED] == []

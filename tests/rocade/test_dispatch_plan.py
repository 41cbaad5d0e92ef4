"""A backend that learns only at plan that it cannot serve: who passes it over, and who hears of it."""

from __future__ import annotations

import pytest
from tests.rocade.batches import SIZES, Batch, workspace

import rocade
from arch_caps import Reason, Request
from rocade import _dispatch
from rocade._place import Place
from rocade.backends._base import Backend


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts as a new process does."""
    for name in ("_found", "_planned"):
        monkeypatch.setattr(_dispatch, name, {})
    monkeypatch.setattr(_dispatch, "_logged", set())


class FailsToPlan:
    """Stands for a backend that learns at plan that it cannot serve, and remembers it if it is `learning`."""

    def __init__(self, real: Backend, *, learning: bool) -> None:
        self.name, self._real, self._learning = real.name, real, learning
        self.why: list[Reason] = []

    def absent(self, place: Place) -> list[Reason]:
        return []

    def refuses(self, request: Request, place: Place) -> list[Reason]:
        return self.why

    def plan(self, request: Request, problem: object) -> object:
        if self._learning:
            self.why = [Reason("build", "does not build")]
        raise RuntimeError("did not build")


def planned(monkeypatch: pytest.MonkeyPatch, backend: str, *, learning: bool) -> str:
    """The backend of a decode plan where backend `cpu` fails to plan."""
    registry = dict(_dispatch.REGISTRY)
    registry["cpu"] = FailsToPlan(registry["cpu"], learning=learning)  # type: ignore[assignment]
    monkeypatch.setattr(_dispatch, "REGISTRY", registry)
    batch = Batch([1], [5])
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(*batch.pages.table, *SIZES, 4, q_data_type="float32")
    return wrapper.backend


def test_auto_passes_over_a_backend_that_learns_at_plan_that_it_cannot_serve(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert planned(monkeypatch, "auto", learning=True) == "torch"
    assert "did not build" in caplog.text


@pytest.mark.parametrize(("backend", "learning"), [("cpu", True), ("cpu", False), ("auto", False)])
def test_a_plan_that_fails_otherwise_or_of_a_backend_asked_for_is_an_error(
    backend: str, learning: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="did not build"):
        planned(monkeypatch, backend, learning=learning)


def test_strict_mode_passes_over_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHINFER_AITER_STRICT", "1")
    with pytest.raises(RuntimeError, match="did not build"):
        planned(monkeypatch, "auto", learning=True)

"""Which calls try to be repeated and which are learned; what a backend makes of that is its own affair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

import rocade
from rocade import _dispatch, _replay
from rocade.backends.torch import BACKEND

State = tuple[torch.Tensor, torch.Tensor]


def state(rows: int = 3) -> State:
    return torch.randn(rows, 2, 16), torch.randn(rows, 2)


class Learner:
    """A backend that learns every call, and repeats it when told to."""

    def __init__(self) -> None:
        self.learned: list[tuple[tuple[str, str], list[torch.Tensor]]] = []
        self.repeated: list[tuple[torch.Tensor, ...]] = []
        self.repeats = False

    def __getattr__(self, name: str) -> object:
        return getattr(BACKEND, name)

    def learn(self, kind: tuple[str, str], tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
        self.learned.append((kind, list(tensors)))

        def repeat(*given: torch.Tensor) -> bool:
            self.repeated.append(given)
            return self.repeats

        return repeat


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Learner:
    made = Learner()
    monkeypatch.setattr(_replay, "_repeats", {})
    monkeypatch.setattr(_dispatch, "select", lambda *_: made)
    return made


def test_calls_are_learned_with_the_callers_own_tensors(learner: Learner) -> None:
    a, b = state(), state()
    half = b[1].double()
    out = rocade.merge_state(*a, b[0], half)
    rocade.merge_state_in_place(*a, *b)
    many, weights = torch.randn(3, 4, 2, 16), torch.randn(3, 4, 2)
    merged = rocade.merge_states(many, weights, backend="torch")
    expected = [
        (("merge_state", "auto"), [*a, b[0], half, *out]),
        (("merge_state_in_place", "auto"), [*a, *b]),
        (("merge_states", "torch"), [many, weights, *merged]),
    ]
    for (kind, tensors), (wanted_kind, wanted) in zip(learner.learned, expected, strict=True):
        assert kind == wanted_kind
        assert all(x is y for x, y in zip(tensors, wanted, strict=True))


def test_a_repeated_call_returns_the_results_that_it_was_given(learner: Learner) -> None:
    a, b = state(), state()
    rocade.merge_state(*a, *b)
    learner.repeats = True
    v, s = rocade.merge_state(*a, *b)
    assert len(learner.learned) == 1
    ((*inputs, v_out, s_out),) = learner.repeated
    assert all(x is y for x, y in zip(inputs, (*a, *b), strict=True))
    assert v is v_out
    assert s is s_out
    assert v.is_contiguous()


def test_a_call_that_cannot_be_repeated_goes_the_ordinary_way(learner: Learner) -> None:
    a, b = state(), state()
    first = rocade.merge_state(*a, *b)
    second = rocade.merge_state(*a, *b)
    assert learner.repeated
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("given", ["mask", "out"])
def test_masks_and_given_results_are_neither_learned_nor_repeated(learner: Learner, given: str) -> None:
    a, b = state(), state()
    _replay._repeats.update({(op, "auto"): pytest.fail for op in ("merge_state", "merge_state_in_place")})
    if given == "out":
        rocade.cascade.merge_state(*a, *b, out=state())
    else:
        rocade.merge_state_in_place(*a, *b, torch.ones(3, dtype=torch.bool))
    assert not learner.learned


@pytest.mark.parametrize("wrong", [None, 3, "text"])
def test_what_is_no_tensor_is_refused_as_ever(learner: Learner, wrong: object) -> None:
    a, b = state(), state()
    rocade.merge_state(*a, *b)
    with pytest.raises(ValueError, match="v_a: got"):
        rocade.merge_state(wrong, a[1], *b)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="s_a: got"):
        rocade.merge_state(a[0], wrong, *b)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 0, 2), (3, 5, 2), (3, 4, 2, 1)])
def test_states_that_do_not_belong_together_are_refused_as_ever(
    learner: Learner, shape: tuple[int, ...]
) -> None:
    many = torch.randn(3, 4, 2, 16)
    rocade.merge_states(many, torch.randn(3, 4, 2))
    with pytest.raises(ValueError, match="s: got"):
        rocade.merge_states(many, torch.randn(shape))


def test_appends_with_arrays_on_the_host_are_checked_every_time(learner: Learner) -> None:
    key = torch.randn(2, 2, 16)
    arrays = [torch.tensor(x, dtype=torch.int32) for x in ([0, 0], [0, 1], [1], [0, 1], [2])]
    rocade.append_paged_kv_cache(key, key, *arrays[:2], torch.zeros(2, 2, 16, 2, 16), *arrays[2:])
    assert not learner.learned


def test_appends_are_told_apart_by_backend_layout_and_caches(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocade._checks.is_readable", lambda _: False)  # as on a device
    key = torch.randn(2, 16, 16)
    arrays = [torch.tensor(x, dtype=torch.int32) for x in ([0, 0], [0, 1], [1], [0, 1], [2])]
    cache = torch.zeros(2, 2, 16, 16, 16)
    for given, layout, backend in (
        (cache, "NHD", "auto"),
        (cache, "HND", "auto"),
        ((cache[:, 0], cache[:, 1]), "NHD", "auto"),
        (cache, "NHD", "torch"),
    ):
        rocade.append_paged_kv_cache(
            key, key, *arrays[:2], given, *arrays[2:], kv_layout=layout, backend=backend
        )
    kinds = [kind for kind, _ in learner.learned]
    assert len(set(kinds)) == len(kinds) == 4
    assert [len(tensors) for _, tensors in learner.learned] == [7, 7, 8, 7]

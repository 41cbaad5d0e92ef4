"""What FlashInfer has and rocade does not: importable, and refused in one sentence when called."""

from __future__ import annotations

import re

import pytest
import torch

from rocade import _refused
from rocade._refused_names import FEATURES, Feature

TOP = _refused.attributes("rocade")


@pytest.mark.parametrize("name", _refused.names(""))
def test_every_name_is_refused_in_one_sentence_when_called(name: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"^rocade has no {re.escape(name)}: .+; .+\.$"):
        TOP(name)(1, key=2)


def test_no_name_is_listed_twice() -> None:
    names = [name for feature in FEATURES for name in feature.names.split()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("feature", FEATURES, ids=lambda f: f.modules[0])
def test_a_feature_is_found_in_its_modules(feature: Feature) -> None:
    for module in feature.modules:
        for name in feature.names.split():
            assert _refused.attributes(f"rocade.{module}")(name) is TOP(name)


def test_modules_without_a_counterpart_are_stand_ins() -> None:
    sampling = TOP("sampling")
    with pytest.raises(_refused.RefusedError, match="top_k_sampling_from_probs"):
        sampling.top_k_sampling_from_probs(torch.ones(1, 2), 1)
    with pytest.raises(AttributeError, match=r"flashinfer\.sampling.*rmsnorm"):
        _ = sampling.rmsnorm
    assert TOP("comm").mnnvl is TOP("comm").mnnvl


@pytest.mark.parametrize("name", ["nothing_like_this", "__path__", "cascade", "_private"])
def test_unknown_names_are_attribute_errors(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        TOP(name)


def test_refused_classes_serve_isinstance_and_subclassing() -> None:
    fp4 = TOP("FP4Tensor")
    assert not isinstance(torch.ones(1), fp4)
    assert issubclass(type("Derived", (fp4,), {}), fp4)


def test_members_of_a_refused_enum_are_refused_by_name() -> None:
    routing = TOP("RoutingMethodType")
    with pytest.raises(_refused.RefusedError, match="RoutingMethodType"):
        _ = routing.Renormalize
    assert not hasattr(routing, "Renormalize")


@pytest.mark.parametrize(
    ("value", "neutral"), [(None, ()), (False, (False,)), (1, (1.0,)), (1.0, (1.0,)), ("NONE", ("NONE",))]
)
def test_neutral_arguments_pass(value: object, neutral: tuple[object, ...]) -> None:
    _refused.refuse("argument", value, *neutral)


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (torch.ones(2), "Tensor"), ("x", "'x'"), (True, "True"), (2.0, "2.0")]
)
def test_other_arguments_are_refused_with_name_and_value(value: object, shown: str) -> None:
    with pytest.raises(_refused.RefusedError, match=f"support sinks; got {shown}"):
        _refused.refuse("sinks", value, 0.5)

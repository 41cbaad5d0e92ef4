"""The `caps` marker and fixture skip with the table's own words, and only where it has a reason."""

from __future__ import annotations

import pytest
from tests.conftest import Need, request_for

from arch_caps import Op, reasons


def test_fixture_skips_with_every_reason_of_the_table(caps: Need) -> None:
    refused = request_for(Op.BATCH_DECODE, head_dim_qk=7, head_dim_vo=7)
    why = reasons(refused, backend="hip", target="cpu")
    assert why
    with pytest.raises(pytest.skip.Exception) as skipped:
        caps(refused, "hip")
    for reason in why:
        assert str(reason) in str(skipped.value)


def test_fixture_lets_a_served_request_pass(caps: Need) -> None:
    caps(request_for(Op.BATCH_DECODE), "torch")


@pytest.mark.caps(Op.BATCH_DECODE, "hip")
def test_marker_skips_before_the_test_starts() -> None:
    pytest.fail("no GPU kernel exists, so the marker must have skipped this")


@pytest.mark.caps(Op.BATCH_DECODE, "torch")
def test_marker_lets_a_served_request_pass() -> None:
    assert not reasons(request_for(Op.BATCH_DECODE), backend="torch", target="cpu")

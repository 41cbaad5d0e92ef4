"""Cases for an implementation that accepts few of the grid's."""

from __future__ import annotations

import pytest

import arch_caps
from arch_caps import Op
from rocade.conformance import grid, narrow
from rocade.conformance.cases import AttentionCase
from rocade.conformance.runner import reasons_of

OPS = [op for op in Op if (op, "aiter_asm") in arch_caps.ROWS]


@pytest.mark.parametrize("op", OPS)
def test_all_are_accepted_and_every_accepted_pair_of_lengths_and_groups_is_there(op: Op) -> None:
    cases = narrow.narrow(op, "aiter_asm", "gfx950")
    assert not any(reasons_of(case, "aiter_asm", "gfx950") for case in cases)
    found = {(c.lengths, c.group_size) for c in cases if isinstance(c, AttentionCase)}
    lengths, groups = ({pair[i] for pair in found} for i in (0, 1))
    assert len(lengths) >= 8
    assert len(groups) == 8
    assert len(found) == len(lengths) * len(groups)
    assert {c.return_lse for c in cases if isinstance(c, AttentionCase)} == {False, True}


def test_their_indices_are_theirs_alone_and_find_them() -> None:
    cases = narrow.narrow(Op.SINGLE_PREFILL, "aiter_asm", "gfx942")
    assert [case.index for case in cases] == [grid.NARROW_FIRST + at for at in range(len(cases))]
    assert narrow.find(Op.SINGLE_PREFILL, "aiter_asm", "gfx942", cases[3].index) == cases[3]
    assert narrow.find(Op.SINGLE_PREFILL, "aiter_asm", "gfx942", cases[-1].index + 1) is None
    assert grid.find(Op.SINGLE_PREFILL, cases[0].index) is None


@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize(("backend", "target"), [("hip", "gfx942"), ("cpu", "cpu"), ("torch", "cpu")])
def test_who_accepts_much_has_none(op: Op, backend: str, target: str) -> None:
    assert narrow.narrow(op, backend, target) == ()

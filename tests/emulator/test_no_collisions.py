"""No two rows of the instruction table share an encoding, and no mnemonic has two meanings on one target."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.emulator.isa_table import TARGETS, rows, rows_of


@pytest.mark.parametrize("target", TARGETS)
def test_one_row_per_encoding(target: str) -> None:
    """(format, opcode) names one row. MFMA lives in VOP3P's opcode space, so those two count as one."""
    space = {"mfma": "vop3p"}
    found = Counter((space.get(row.format, row.format), row.opcode) for row in rows_of(target))
    assert [encoding for encoding, count in found.items() if count > 1] == []


@pytest.mark.parametrize("target", TARGETS)
def test_one_meaning_per_mnemonic(target: str) -> None:
    """A mnemonic stands in one row."""
    found = Counter(row.mnemonic for row in rows_of(target))
    assert [mnemonic for mnemonic, count in found.items() if count > 1] == []


def test_a_row_for_each_target_is_a_real_difference() -> None:
    """A mnemonic with a row of its own for each target must differ between them, or one row would do."""
    by_mnemonic: dict[str, set[tuple[object, ...]]] = {}
    count: Counter[str] = Counter()
    for row in rows():
        by_mnemonic.setdefault(row.mnemonic, set()).add((row.opcode, row.dst, row.src))
        count[row.mnemonic] += 1
    assert [name for name, forms in by_mnemonic.items() if len(forms) != count[name]] == []


def test_vop3_spaces_do_not_overlap() -> None:
    """VOPC, VOP2 and VOP1 rows fit the ranges that their 64-bit forms have; VOP3 rows stay out of them."""
    ranges = {"vopc": range(256), "vop2": range(64), "vop1": range(128), "vop3": range(448, 1024)}
    assert [
        row.mnemonic for row in rows() if row.format in ranges and row.opcode not in ranges[row.format]
    ] == []

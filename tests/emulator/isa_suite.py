"""Which rows a format's test runs in their plain form, and which have tests of their own."""

from __future__ import annotations

from tests.emulator import isa_valu
from tests.emulator.isa_table import Row, rows_of

# Rows whose operands are not plain vector registers: test_ops_cross_lane.py and others run them.
ELSEWHERE = {
    "v_nop",
    "v_readfirstlane_b32",
    "v_readlane_b32",
    "v_writelane_b32",
    "v_swap_b32",
    "v_permlane16_swap_b32",
    "v_permlane32_swap_b32",
    "v_accvgpr_mov_b32",
    "v_accvgpr_read_b32",
    "v_accvgpr_write_b32",
    "v_bitop3_b16",
    "v_bitop3_b32",
}


def plain_rows(target: str, *formats: str) -> list[Row]:
    """Rows of some formats that the plain test runs."""
    return [
        row
        for row in rows_of(target, *formats)
        if row.mnemonic not in ELSEWHERE and "scalef32" not in row.mnemonic
    ]


def check(target: str, *formats: str) -> int:
    """Every row of some formats in its plain form against the oracle."""
    rows = plain_rows(target, *formats)
    assert isa_valu.check(target, [isa_valu.plain(row) for row in rows]) == len(rows)
    return len(rows)

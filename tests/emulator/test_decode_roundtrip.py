"""Decoding against an assembler: every row and operand form; our text assembles to the same bytes."""

from __future__ import annotations

import functools
import re
from collections import Counter

import pytest
from tests.emulator import assembly
from tests.emulator.isa_forms import lines_of
from tests.emulator.isa_operands import Line
from tests.emulator.isa_table import TARGETS, rows, rows_of

# What an assembler accepts and this decoder refuses on purpose: an error that names the field, never a guess.
REFUSED = {
    "mfma": r"unsupported (cbsz|abid|blgp)",
    "vopc": r"clamp on an integer result",
    "vop1": r"clamp on an integer result|omod, which has no effect|unsupported operand",
    "vop2": r"clamp on an integer result|omod, which has no effect|float modifier on an integer source|"
    r"no such scalar register",
    "vop3": r"clamp on an integer result|omod, which has no effect|op_sel on a 32-bit (source|destination)|"
    r"float modifier on an integer source",
    "vop3p": r"clamp on a packed integer result",
    "ds": r"unsupported gds",
}
MOST_REFUSED = 0.05  # of all forms


@functools.cache
def candidates(target: str) -> tuple[tuple[Line, ...], dict[int, str]]:
    """All lines of a target, and those that the assembler refuses."""
    lines = tuple(line for row in rows_of(target) for line in lines_of(row))
    return lines, assembly.refused([line.text for line in lines], target)


@functools.cache
def accepted(target: str) -> tuple[list[Line], list[bytes], list[tuple[str, int] | None]]:
    """Lines that assemble, their bytes, and what the decoder makes of them."""
    lines, bad = candidates(target)
    kept = [line for k, line in enumerate(lines) if k not in bad]
    slots = assembly.encode([line.text for line in kept], target)
    return kept, slots, assembly.decode(slots, target)


@pytest.mark.parametrize("target", TARGETS)
def test_every_row_exists(target: str) -> None:
    """The assembler knows each mnemonic of the table, with the operands that its row says."""
    lines, bad = candidates(target)
    assert {lines[k].text: error for k, error in bad.items() if lines[k].required} == {}
    assert {line.row.mnemonic for line in lines if line.required} >= {
        row.mnemonic for row in rows_of(target) if row.format != "sopp"
    }


def test_rows_of_one_target_are_refused_for_the_other() -> None:
    """A row that only one target has is one that the assembler refuses for the other."""
    for target in TARGETS:
        alone = [row for row in rows() if target not in row.targets]
        lines = [line for row in alone for line in lines_of(row) if line.required]
        bad = assembly.refused([line.text for line in lines], target)
        # The same mnemonic may stand in another row for this target.
        both = {row.mnemonic for row in rows_of(target)}
        wrong = [line.text for k, line in enumerate(lines) if k not in bad and line.row.mnemonic not in both]
        assert wrong == []


@pytest.mark.parametrize("target", TARGETS)
def test_every_form_decodes(target: str) -> None:
    """What assembles decodes, to the same mnemonic and size, or is refused for a listed reason."""
    lines, slots, found = accepted(target)
    wrong: list[str] = []
    refused: Counter[str] = Counter()
    for line, raw, got in zip(lines, slots, found, strict=True):
        if got is None:
            error = assembly.decode_error(raw, target)
            refused[line.row.format] += 1
            if not re.search(REFUSED.get(line.row.format, r"(?!)"), error) or line.required:
                wrong.append(f"{line.text}: {error}")
            continue
        mnemonic = re.sub(r"_(e32|e64|sdwa|dpp)$", "", got[0].split()[0])
        if mnemonic != line.row.mnemonic:
            wrong.append(f"{line.text}: read as {got[0]}")
    assert wrong[:20] == []
    assert sum(refused.values()) < MOST_REFUSED * len(lines)


@pytest.mark.parametrize("target", TARGETS)
def test_text_assembles_to_the_same_bytes(target: str) -> None:
    """Mnemonic, operands, offsets and modifiers in our text are those of the instruction."""
    lines, slots, found = accepted(target)
    pairs = [(line, raw, got) for line, raw, got in zip(lines, slots, found, strict=True) if got]
    bad = assembly.refused([got[0] for _, _, got in pairs], target)
    assert [f"{pairs[k][0].text} became {pairs[k][2][0]}: {error}" for k, error in bad.items()][:20] == []
    again = assembly.encode([got[0] for _, _, got in pairs], target)
    wrong = [
        f"{line.text} became {got[0]}"
        for (line, raw, got), new in zip(pairs, again, strict=True)
        if raw != new
    ]
    assert wrong[:20] == []
    assert len(pairs) > 30_000


@pytest.mark.parametrize("target", TARGETS)
def test_unknown_encodings_are_errors_that_name_the_place(target: str) -> None:
    """Opcodes and operand codes that nothing has are refused, with their offset and words."""
    words = {
        0xBEFF_FF00: "opcode",  # SOP1 opcode 255
        0x7E02_02EF: "operand code 239",
        0xBF9F_0000: "opcode",  # SOPP opcode 31
        0xDFFF_FFFF: "",  # FLAT, reserved segment
        0xC800_0000: "no encoding",
    }
    for word, reason in words.items():
        error = assembly.decode_error(
            (0xBF800000).to_bytes(4, "little") + word.to_bytes(4, "little") * 2, target
        )
        assert error.startswith("pc 0x4: "), error
        assert reason in error
        assert f"{word:08x}" in error

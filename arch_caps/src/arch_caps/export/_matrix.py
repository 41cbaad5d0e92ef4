"""The support matrix in Markdown: the README's short one, and what the documentation page shares with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arch_caps._defects import Defect
from arch_caps._table import DEFECTS, TARGETS
from arch_caps._types import Op
from arch_caps.export._claims import LEGEND, NO, Claims, state, weakest

BACKENDS = ("hip", "aiter_asm", "aiter_ck", "cpu", "torch")
SHOWN_TARGETS = tuple(name for name in TARGETS if name != "cpu-generic")

FAMILIES = (
    ("prefill (single, paged, ragged)", (Op.SINGLE_PREFILL, Op.BATCH_PREFILL_PAGED, Op.BATCH_PREFILL_RAGGED)),
    ("decode (single, paged batch)", (Op.SINGLE_DECODE, Op.BATCH_DECODE)),
    ("cascade", (Op.CASCADE,)),
    (
        "merging and summing states",
        (
            Op.MERGE_STATE,
            Op.MERGE_STATE_IN_PLACE,
            Op.MERGE_STATES,
            Op.VARIABLE_LENGTH_MERGE_STATES,
            Op.ATTENTION_SUM,
            Op.VARIABLE_LENGTH_ATTENTION_SUM,
        ),
    ),
    ("appending to the paged cache", (Op.APPEND_PAGED_KV_CACHE,)),
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def defects_of(op: Op, backend: str, target: str) -> list[Defect]:
    """Recorded defects of one cell."""
    return [defect for defect in DEFECTS.get((op, backend), ()) if target in defect.targets]


def readme_block(claims: Claims) -> str:
    """One line per kind of operation and backend; a cell claims what the weakest of its operations does."""
    head = ["Operations", "Backend", *(TARGETS[name].title for name in SHOWN_TARGETS)]
    rows = []
    for title, ops in FAMILIES:
        for backend in BACKENDS:
            cells = [weakest(state(op, backend, target, claims) for op in ops) for target in SHOWN_TARGETS]
            if set(cells) != {NO}:
                rows.append([title, f"`{backend}`", *cells])
    return "\n".join([table(head, rows), *legend(), ""])


def legend() -> list[str]:
    """What the words of the matrix mean."""
    return [f"- **{word}**: {meaning}." for word, meaning in LEGEND]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

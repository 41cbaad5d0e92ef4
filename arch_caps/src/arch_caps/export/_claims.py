"""What may be claimed of a row on a target, and the words for it: never more than was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from arch_caps._evidence import Evidence, is_fresh, read_evidence
from arch_caps._row import Row
from arch_caps._table import ROWS
from arch_caps._types import EvidenceKind, Op, Status

STALE = ", stale"
NO, PLANNED, UNPROVEN = "no", "planned", "built, no recorded run"

# Weakest first; a group of operations claims what its weakest one does.
WORDS = (NO, PLANNED, UNPROVEN, *(str(kind) for kind in EvidenceKind))

LEGEND = (
    ("hardware", "it ran on that device, and every result was compared with a float64 reference"),
    ("emulated", "the shipped machine code ran in the emulator, with the same comparison"),
    ("compiled", "it went through the compiler for that target and was never run"),
    ("stale", "as it says, but the sources have changed since"),
    (UNPROVEN, "the code is there and accepts the target; nobody has recorded a run"),
    (PLANNED, "there is no code yet, and every call is refused"),
    (NO, "the backend does not serve this operation or this target"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The best evidence for one (op, backend, target)."""

    kind: EvidenceKind
    cases: int
    fresh: bool  # the sources are still those that were run
    on: str
    date: str
    toolchain: Mapping[str, str]


Claims: TypeAlias = Mapping[tuple[Op, str, str], Claim]


def collect_claims(root: Path) -> Claims:
    """Read the evidence of the checkout `root` and compare its hashes with the sources there."""
    return best_claims(
        (record, op_record.op, op_record.cases, is_fresh(op_record, record.backend, root))
        for record in read_evidence(root / "arch_caps" / "evidence")
        for op_record in record.ops
    )


def best_claims(found: Iterable[tuple[Evidence, Op, int, bool]]) -> Claims:
    """For each (op, backend, target) the strongest fresh record, or the strongest stale one."""
    claims: dict[tuple[Op, str, str], Claim] = {}
    for record, op, cases, fresh in found:
        claim = Claim(
            kind=record.kind,
            cases=cases,
            fresh=fresh,
            on=record.on,
            date=record.date,
            toolchain=record.toolchain,
        )
        key = (op, record.backend, record.target)
        if key not in claims or _rank(claim) > _rank(claims[key]):
            claims[key] = claim
    return claims


def state(op: Op, backend: str, target: str, claims: Claims) -> str:
    """The words for one cell."""
    entry: Row | None = ROWS.get((op, backend))
    if entry is None or not entry.targets.holds(target, None):
        return NO
    if entry.status is Status.PLANNED:
        return PLANNED
    claim = claims.get((op, backend, target))
    if claim is None:
        return UNPROVEN
    return str(claim.kind) if claim.fresh else f"{claim.kind}{STALE}"


def weakest(states: Iterable[str]) -> str:
    """What a group may claim: its weakest member, stale when any member is."""
    members = list(states)
    word = min((member.removesuffix(STALE) for member in members), key=WORDS.index)
    stale = word in set(EvidenceKind) and any(member.endswith(STALE) for member in members)
    return word + STALE if stale else word


def without_staleness(text: str) -> str:
    """`text` as if all evidence were fresh: editing a source must not make a generated file outdated."""
    return text.replace(STALE, "")


def _rank(claim: Claim) -> tuple[bool, int]:
    return claim.fresh, list(EvidenceKind).index(claim.kind)

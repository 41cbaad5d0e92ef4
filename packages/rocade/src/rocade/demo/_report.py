"""What the demo has found: whether the ways to attend agree token for token, their times, and the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import truediv
from statistics import median

from rocade.demo._generate import Answers


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a request's tokens first part from the reference; what follows continues another text."""

    request: int
    step: int
    lead: float  # logits between the likeliest two tokens, in this run
    reference_lead: float  # the same in the reference

    def is_tie(self, limit: float) -> bool:
        """Whether both runs were undecided by less than `limit` logits, so that rounding explains it."""
        return max(self.lead, self.reference_lead) < limit

    def line(self, limit: float) -> str:
        """Request, token, and both leads."""
        cause = "a tie within rounding" if self.is_tie(limit) else "NOT a tie"
        return (
            f"request {self.request + 1} parts at token {self.step + 1}, where the likeliest two tokens are "
            f"{self.lead:.2g} and {self.reference_lead:.2g} logits apart: {cause}"
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One way to attend and what it did."""

    name: str
    answers: Answers
    kv_bytes: int

    @property
    def attention_ms(self) -> float:
        """Median over decode steps."""
        return 1e3 * median(self.answers.attention_seconds)

    @property
    def step_ms(self) -> float:
        """Median over decode steps, model included."""
        return 1e3 * median(self.answers.step_seconds)


def differences(answers: Answers, reference: Answers) -> list[Difference]:
    """The first differing token of each request that has one."""
    found = []
    for request, (ours, theirs) in enumerate(zip(answers.tokens, reference.tokens, strict=True)):
        step = _common(ours, theirs)
        if step < len(theirs):
            leads = answers.leads[request][step], reference.leads[request][step]
            found.append(Difference(request, step, *leads))
    return found


def noise(answers: Answers, reference: Answers) -> float:
    """Largest difference of a chosen token's lead, in logits, while the texts are the same."""
    changes = [0.0]
    for request, (ours, theirs) in enumerate(zip(answers.tokens, reference.tokens, strict=True)):
        pairs = zip(answers.leads[request], reference.leads[request], strict=True)
        changes += [abs(a - b) for a, b in list(pairs)[: _common(ours, theirs)]]
    return max(changes)


def _common(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Tokens before the first that differs."""
    pairs = zip(ours, theirs, strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(theirs))


def equality(runs: Sequence[Run], reference: Run, tie_limit: float) -> tuple[list[str], bool]:
    """Lines that compare greedy tokens, and whether all differences are ties."""
    count = sum(map(len, reference.answers.tokens))
    lines = [
        f"Greedy tokens, {len(reference.answers.tokens)} requests, {count} tokens, and their lead in logits"
    ]
    good = True
    for run in runs:
        found = differences(run.answers, reference.answers)
        good = good and all(d.is_tie(tie_limit) for d in found)
        verdict = f"{len(found)} requests differ from" if found else "equal to"
        change = noise(run.answers, reference.answers)
        lines.append(f"  {run.name:26}{verdict} those of {reference.name}; leads within {change:.1g}")
        lines += [f"    {difference.line(tie_limit)}" for difference in found]
    return lines, good


def timing(runs: Sequence[Run], reference: Run) -> list[str]:
    """The table of times. Ratios compare the attention of the same step, and are medians like all of it."""
    batch = len(reference.answers.tokens)
    lines = [
        f"Decode, medians of {len(reference.answers.step_seconds)} steps of {batch} requests",
        f"  {'':26}{'attention':>12}{'ratio':>8}{'whole step':>13}{'tokens/s':>11}",
    ]
    for run in (*runs, reference):
        ratio = median(map(truediv, reference.answers.attention_seconds, run.answers.attention_seconds))
        speed = batch / run.step_ms * 1e3
        lines.append(
            f"  {run.name:26}{run.attention_ms:9.1f} ms{ratio:7.1f}x{run.step_ms:10.1f} ms{speed:11.1f}"
        )
    return lines


def memory(shared: Run, unshared: Run) -> list[str]:
    """KV bytes with the prompt held once, and with a copy a request."""
    ratio = unshared.kv_bytes / shared.kv_bytes
    return [
        "KV cache, all layers",
        f"  prompt's pages shared     {shared.kv_bytes / 1e6:9.1f} MB",
        f"  a copy for each request   {unshared.kv_bytes / 1e6:9.1f} MB  ({ratio:.1f}x)",
    ]

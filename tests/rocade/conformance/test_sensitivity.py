"""The grid notices the faults it exists for: each is planted in the oracle, and some case must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from arch_caps import Op
from rocade.conformance import grid, inputs, oracle, tolerances
from rocade.conformance.cases import AttentionCase
from rocade.conformance.oracle import Reference, Rules

Fault = Callable[[pytest.MonkeyPatch], None]


def change_rules(monkeypatch: pytest.MonkeyPatch, change: Callable[[Rules], Rules]) -> None:
    original = inputs.rules
    monkeypatch.setattr(inputs, "rules", lambda case, scales: change(original(case, scales)))


def change_visibility(monkeypatch: pytest.MonkeyPatch, visible: Callable[..., torch.Tensor]) -> None:
    monkeypatch.setattr(oracle, "visible_keys", partial(visible, oracle.visible_keys))


def window_off_by_one(rules: Rules) -> Rules:
    return replace(rules, window_left=rules.window_left + 1) if rules.window_left >= 0 else rules


def causal_top_left(
    true: Callable[..., torch.Tensor], n: int, m: int, rules: Rules, custom: torch.Tensor | None
) -> torch.Tensor:
    seen = true(n, m, replace(rules, causal=False), custom)
    return seen & torch.ones(n, m, dtype=torch.bool).tril() if rules.causal and custom is None else seen


def causal_on_top_of_custom(
    true: Callable[..., torch.Tensor], n: int, m: int, rules: Rules, custom: torch.Tensor | None
) -> torch.Tensor:
    seen = true(n, m, rules, custom)
    return seen if custom is None else seen & true(n, m, replace(rules, causal=True), None)


def no_window_with_custom(
    true: Callable[..., torch.Tensor], n: int, m: int, rules: Rules, custom: torch.Tensor | None
) -> torch.Tensor:
    return true(n, m, rules if custom is None else replace(rules, window_left=-1), custom)


def window_bounds_the_right(
    true: Callable[..., torch.Tensor], n: int, m: int, rules: Rules, custom: torch.Tensor | None
) -> torch.Tensor:
    causal = rules.causal or (rules.window_left >= 0 and custom is None)
    return true(n, m, replace(rules, causal=causal), custom)


def last_key_dropped(
    true: Callable[..., torch.Tensor], n: int, m: int, rules: Rules, custom: torch.Tensor | None
) -> torch.Tensor:
    seen = true(n, m, rules, custom).clone()
    seen[:, -1:] = False
    return seen


def natural_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "LOG2_E", 1.0)


def heads_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    true = oracle.attend

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: object) -> Reference:
        order = [h % k.shape[1] for h in range(q.shape[1])]
        return true(q, k[:, order], v[:, order], *rest)

    monkeypatch.setattr(oracle, "attend", attend)


def alibi_slopes_of_the_next_power(monkeypatch: pytest.MonkeyPatch) -> None:
    def slopes(heads: int) -> list[float]:
        n = 1 << (heads - 1).bit_length()
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(heads)]

    monkeypatch.setattr(oracle, "alibi_slopes", slopes)


def rope_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs (2 i, 2 i + 1) instead of the two halves."""
    true = oracle.rope

    def rope(x: torch.Tensor, *rest: object) -> torch.Tensor:
        halves = torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
        return true(halves, *rest)

    monkeypatch.setattr(oracle, "rope", rope)


def local_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level judges window and positions by its own length, and the levels are merged."""
    from rocade.conformance import oracle_states

    def cascade(q: torch.Tensor, levels: list[oracle.CascadeLevel], rules: Rules) -> Reference:
        result = None
        for at, level in enumerate(levels):
            last = at == len(levels) - 1
            part = oracle.batch(
                q, level.qo_indptr, level.keys, level.values, replace(rules, causal=rules.causal and last)
            )
            if result is None:
                result = part
                continue
            merged = oracle_states.merge_state(result.out, result.lse, part.out, part.lse)
            result = Reference(merged.v, merged.s, *part[2:])
        assert result is not None
        return result

    monkeypatch.setattr(oracle, "cascade", cascade)


FAULTS: dict[str, tuple[Op, Fault]] = {
    "window off by one": (Op.BATCH_PREFILL_PAGED, partial(change_rules, change=window_off_by_one)),
    "window off by one, decode": (Op.BATCH_DECODE, partial(change_rules, change=window_off_by_one)),
    "window dropped": (
        Op.BATCH_PREFILL_RAGGED,
        partial(change_rules, change=lambda r: replace(r, window_left=-1)),
    ),
    "soft cap dropped": (Op.SINGLE_PREFILL, partial(change_rules, change=lambda r: replace(r, soft_cap=0.0))),
    "v_scale dropped": (Op.BATCH_DECODE, partial(change_rules, change=lambda r: replace(r, v_scale=1.0))),
    "scale one per cent off": (
        Op.SINGLE_DECODE,
        partial(change_rules, change=lambda r: replace(r, scale=1.01 * r.scale)),
    ),
    "causal top-left": (Op.BATCH_PREFILL_PAGED, partial(change_visibility, visible=causal_top_left)),
    "causal on top of custom": (
        Op.BATCH_PREFILL_RAGGED,
        partial(change_visibility, visible=causal_on_top_of_custom),
    ),
    "no window with custom": (
        Op.BATCH_PREFILL_PAGED,
        partial(change_visibility, visible=no_window_with_custom),
    ),
    "window bounds the right": (
        Op.SINGLE_PREFILL,
        partial(change_visibility, visible=window_bounds_the_right),
    ),
    "last key dropped": (Op.BATCH_DECODE, partial(change_visibility, visible=last_key_dropped)),
    "natural log": (Op.BATCH_DECODE, natural_log),
    "heads interleaved": (Op.BATCH_DECODE, heads_interleaved),
    "alibi slopes": (Op.BATCH_DECODE, alibi_slopes_of_the_next_power),
    "rope of neighbours": (Op.BATCH_PREFILL_PAGED, rope_of_neighbours),
    "level-local positions": (Op.CASCADE, local_rows),
}


def distinguishes(case: AttentionCase, monkeypatch: pytest.MonkeyPatch, plant: Fault) -> bool:
    """Whether the case's tolerance tells the planted fault from the truth."""
    given = inputs.build(case)
    truth = inputs.reference(case, given)
    if truth is None:
        return False
    allowed = tolerances.attention(truth, case.dtypes, inputs.largest_position(case, given))
    with monkeypatch.context() as patch:
        plant(patch)
        faulty = inputs.reference(case, given)
    assert faulty is not None
    results = [faulty.out, faulty.lse] if case.return_lse else [faulty.out]
    return any(
        tolerances.largest_excess(got, want, bound)[0] > 1
        for got, want, bound in zip(results, truth[:2], allowed, strict=False)
    )


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, plant = FAULTS[name]
    for case in grid.cases(op):
        assert isinstance(case, AttentionCase)
        if distinguishes(case, monkeypatch, plant):
            return
    pytest.fail(f"no case of {op} notices: {name}")


def test_the_truth_is_not_called_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = grid.cases(Op.BATCH_PREFILL_PAGED)[:40]
    assert not any(distinguishes(case, monkeypatch, lambda _: None) for case in cases)

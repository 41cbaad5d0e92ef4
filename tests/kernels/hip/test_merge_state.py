"""merge_state in the emulator against the fp64 oracle: every dtype, head size, storage, mask and schedule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.kernels.hip import emulated
from tests.kernels.hip.emulated import DTYPES, SCHEDULES, TARGETS
from tests.kernels.hip.states import NEG_INF, assert_state, padded, poisoned, random_state

import rocade_emulator as emu
from rocade.conformance import oracle_states

Pair = tuple[torch.Tensor, torch.Tensor]
NAN = float("nan")


def merged(target: str, dtype: str, a: Pair, b: Pair, **options: Any) -> Pair:
    """Merge into new memory that starts as NaN; both variants give the same bits."""
    outs = []
    for variant in ("", "strided"):
        v, s = torch.full_like(a[0], float("nan")), torch.full_like(a[1], float("nan"))
        if variant:  # a gap behind the last head
            v = torch.full((v.shape[0], v.shape[1] + 1, v.shape[2]), float("nan"), dtype=v.dtype)[:, :-1]
        program = emulated.program("merge_state", target, dtype, variant)
        emulated.merge_state(program, a, b, (v, s), **options)
        outs.append((v, s))
    for x, y in zip(*outs, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
    return outs[0]


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("target", TARGETS)
def test_under_every_schedule(target: str, options: dict[str, Any]) -> None:
    a, b = random_state("bf16", 9, 5, 128), random_state("bf16", 9, 5, 128)
    out = merged(target, "bf16", a, b, **options)
    assert_state(out, oracle_states.merge_state(*a, *b), "bf16")


@pytest.mark.parametrize("dim", [8, 40, 72, 128, 512])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_dtype_and_head_size(target: str, dtype: str, dim: int) -> None:
    a, b = random_state(dtype, 7, 3, dim), random_state(dtype, 7, 3, dim)
    out = merged(target, dtype, a, b)
    assert_state(out, oracle_states.merge_state(*a, *b), dtype)


@pytest.mark.parametrize("storage", ["permuted", "padded", "odd"])
@pytest.mark.parametrize("target", TARGETS)
def test_strides(target: str, storage: str) -> None:
    a, b = random_state("fp16", 6, 4, 64), random_state("fp16", 6, 4, 64)
    out = padded(a, storage, fill=float("nan"))
    given = padded(a, storage), padded(b, storage)
    emulated.merge_state(emulated.program("merge_state", target, "fp16", "strided"), *given, out)
    assert_state(out, oracle_states.merge_state(*a, *b), "fp16")


@pytest.mark.parametrize("target", TARGETS)
def test_states_without_keys_are_left_out_whatever_they_hold(target: str) -> None:
    a, b = poisoned(random_state("bf16", 40, 3, 64), 0.5), poisoned(random_state("bf16", 40, 3, 64), 0.5)
    out = merged(target, "bf16", a, b)
    assert_state(out, oracle_states.merge_state(*a, *b), "bf16")
    only_a, only_b = b[1] == NEG_INF, a[1] == NEG_INF
    neither, both = only_a & only_b, ~only_a & ~only_b
    assert all(bool(x.any()) for x in (neither, both, only_a & ~only_b, only_b & ~only_a))
    assert torch.equal(out[0][only_a & ~only_b], a[0][only_a & ~only_b]), "one state alone is copied"
    assert torch.equal(out[1][only_b & ~only_a], b[1][only_b & ~only_a])
    assert not out[0][neither].any()
    assert bool((out[1][neither] == NEG_INF).all())


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize(("dtype", "heads", "dim"), [("bf16", 3, 64), ("fp16", 40, 80), ("fp32", 3, 512)])
@pytest.mark.parametrize("target", TARGETS)
def test_in_place(
    target: str, dtype: str, heads: int, dim: int, options: dict[str, Any], other: bool
) -> None:
    """Heads of 80 or 512 lie in several waves, of which one writes the lse that all of them read."""
    a, b = random_state(dtype, 5, heads, dim), random_state(dtype, 5, heads, dim)
    reference = oracle_states.merge_state(*a, *b)
    out = b if other else a
    program = emulated.program("merge_state", target, dtype)
    emulated.merge_state(program, a, b, out, **options)
    assert_state(out, reference, dtype)


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize(("dtype", "heads", "dim"), [("fp16", 40, 80), ("fp32", 3, 512)])
@pytest.mark.parametrize("target", TARGETS)
def test_in_place_with_gaps(target: str, dtype: str, heads: int, dim: int, options: dict[str, Any]) -> None:
    a, b = padded(random_state(dtype, 5, heads, dim), "padded"), random_state(dtype, 5, heads, dim)
    reference = oracle_states.merge_state(*a, *b)
    emulated.merge_state(emulated.program("merge_state", target, dtype, "strided"), a, b, a, **options)
    assert_state(a, reference, dtype)


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("target", TARGETS)
def test_a_mask_keeps_rows_to_the_bit_and_does_not_read_them(target: str, options: dict[str, Any]) -> None:
    a, b = random_state("fp16", 9, 30, 80), random_state("fp16", 9, 30, 80)
    kept = torch.tensor([1, 0, 0, 1, 0, 1, 1, 1, 0], dtype=torch.bool)
    reference = oracle_states.merge_state(*a, *b)
    for v, s in (a, b):
        v[kept], s[kept] = float("nan"), float("nan")
    before = a[0].clone(), a[1].clone()
    mask = torch.where(kept, 0, 255).to(torch.uint8)
    program = emulated.program("merge_state", target, "fp16", "strided")
    emulated.merge_state(program, a, b, a, mask, **options)
    chosen = oracle_states.MergedState(*(x[~kept] for x in reference))
    assert_state((a[0][~kept], a[1][~kept]), chosen, "fp16")
    assert torch.equal(a[0][kept].view(torch.int16), before[0][kept].view(torch.int16))
    assert torch.equal(a[1][kept].view(torch.int32), before[1][kept].view(torch.int32))


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_beyond_32_bits(target: str) -> None:
    apart = (1 << 32) + 64  # elements between rows, and between heads of the other state
    buffers = [emu.SparseBuffer(3 * 2 * apart * 2) for _ in range(2)]
    a, b = random_state("bf16", 3, 2, 64), random_state("bf16", 3, 2, 64)
    far_a = buffers[0].torch(torch.bfloat16, (3, 2, 64), (2 * apart, 64, 1)).copy_(a[0])
    far_b = buffers[1].torch(torch.bfloat16, (3, 2, 64), (64, apart, 1)).copy_(b[0])
    out = torch.full_like(a[1], float("nan"))
    program = emulated.program("merge_state", target, "bf16", "strided")
    emulated.merge_state(program, (far_a, a[1]), (far_b, b[1]), (far_a, out))
    assert_state((far_a, out), oracle_states.merge_state(*a, *b), "bf16")


@pytest.mark.parametrize("lses", [(NAN, 0.0), (0.0, NAN), (NAN, NAN), (NAN, NEG_INF), (-NEG_INF, 0.0)])
@pytest.mark.parametrize("target", TARGETS)
def test_an_lse_that_is_no_number_poisons_its_row_alone(target: str, lses: tuple[float, float]) -> None:
    a, b = random_state("fp32", 2, 3, 64), random_state("fp32", 2, 3, 64)
    for state, lse in zip((a, b), lses, strict=True):
        state[1][0] = lse
    out, lse_out = merged(target, "fp32", a, b)
    assert lse_out[0].isnan().all()
    assert out[0].isnan().all()
    rest = [x[1:] for x in (*a, *b)]
    assert_state((out[1:], lse_out[1:]), oracle_states.merge_state(*rest), "fp32")

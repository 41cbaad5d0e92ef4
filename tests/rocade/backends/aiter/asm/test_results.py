"""Backend `aiter_asm` executed: AITER's code objects in the emulator, against the oracle and backend `hip`.

All checks of the emulator are on, and a finding is an error: the backend steers around the two that the code
objects have. Lengths lie around their tiles: 256 query rows; 32 keys (gfx942) or 64 (gfx950).
"""

from __future__ import annotations

import pytest
import torch
from tests.rocade.backends.aiter.asm.batch import TARGETS, Batch, check, lengths

import rocade
from arch_caps import ArchCapabilityError

pytestmark = pytest.mark.usefixtures("objects")

EDGES = [(256, 256), (257, 31), (1, 32), (300, 333), (255, 64), (33, 600), (513, 520)]
FEW = [(5, 9), (0, 7), (3, 0), (1, 1), (0, 0), (40, 33), (2, 31)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_single(target: str, causal: bool) -> None:
    for rows, keys in [(300, 333), (70, 31), (600, 100), (1, 70), (4, 0), (0, 5)]:
        batch = Batch([(rows, keys)], heads=(4, 2))
        with rocade.emulate(target):
            out, lse = rocade.single_prefill_with_kv_cache(
                batch.q, batch.k, batch.v, causal=causal, return_lse=True, backend="aiter_asm"
            )
        check(batch, out, lse, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lens", [EDGES, FEW], ids=["edges", "few"])
def test_ragged(lens: list[tuple[int, int]], target: str, causal: bool) -> None:
    batch = Batch(lens, heads=(6, 2))
    out, lse = batch.ragged(target, "aiter_asm", causal=causal)
    check(batch, out, lse, causal=causal)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("page_size", [1, 16, 48])
@pytest.mark.parametrize("target", TARGETS)
def test_paged(target: str, page_size: int, layout: str) -> None:
    batch = Batch([(5, 9), (0, 7), (70, 0), (260, 300), (1, 65)], heads=(4, 2))
    out, lse = batch.paged(target, "aiter_asm", page_size, layout, causal=page_size != 48)
    check(batch, out, lse, causal=page_size != 48)


@pytest.mark.parametrize("schedule", ["run_to_barrier", "random"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_any_schedule_gives_the_same_bits(target: str, causal: bool, schedule: str) -> None:
    """The race of the gfx950 code object is in its second tile of a request, which is never asked for."""
    batch = Batch([(600, 600), (3, 20)], heads=(2, 1))
    plain = batch.ragged(target, "aiter_asm", causal=causal)
    options = {"schedule": schedule, **({"seed": 3, "quantum": 40} if schedule == "random" else {})}
    other = batch.ragged(target, "aiter_asm", causal=causal, **options)
    assert plain[0].equal(other[0])
    assert plain[1].equal(other[1])


@pytest.mark.parametrize("group", [1, 3, 8, 16])
@pytest.mark.parametrize("target", TARGETS)
def test_groups(target: str, group: int) -> None:
    batch = Batch([(5, 9), (3, 70)], heads=(2 * group, 2))
    out, lse = batch.ragged(target, "aiter_asm", causal=True)
    check(batch, out, lse, causal=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_hip_agrees(target: str, causal: bool) -> None:
    batch = Batch([(5, 9), (0, 7), (40, 70), (12, 4), (1, 33)], heads=(4, 2))
    ours, own = (batch.ragged(target, backend, causal=causal) for backend in ("aiter_asm", "hip"))
    torch.testing.assert_close(ours[0], own[0], atol=0.016, rtol=0.016)
    torch.testing.assert_close(ours[1], own[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_a_window_is_hips(target: str, causal: bool) -> None:
    """Its result differs from the one without a window by far more than rounding: nobody may drop it."""
    batch = Batch([(40, 70), (5, 60)], heads=(4, 2))
    out, _ = batch.ragged(target, "auto", causal=causal, window=7)
    check(batch, out, None, causal=causal, window=7)
    unlimited = batch.oracle(causal=causal).out
    assert (out.double() - unlimited).abs().max() > 0.1
    with pytest.raises(ArchCapabilityError, match=r"aiter_asm:\n.*window_left is 7; accepted: -1"):
        batch.ragged(target, "aiter", causal=causal, window=7)


@pytest.mark.parametrize("target", TARGETS)
def test_decode(target: str) -> None:
    lens = [(1, n) for n in (1, 31, 32, 64, 270, 0)]
    batch = Batch(lens, heads=(8, 2))
    out, lse = batch.decode(target, "aiter_asm", 16)
    check(batch, out, lse, causal=False)


@pytest.mark.parametrize("target", TARGETS)
def test_strided_inputs_and_results(target: str) -> None:
    """Q, K and V in one tensor, and results in wider memory of which nothing else is written."""
    torch.manual_seed(5)
    packed = torch.randn(70, 4 + 2 + 2, 128, dtype=torch.bfloat16)
    batch = Batch([(70, 70)], heads=(4, 2))
    batch.q, batch.k, batch.v = packed.split([4, 2, 2], dim=1)
    wide = torch.full((70, 6, 144), 7.0, dtype=torch.bfloat16)
    wide_lse = torch.full((70, 7), 7.0)
    out, lse = wide[:, 1:5, :128], wide_lse[:, 2:6]
    batch.ragged(target, "aiter_asm", causal=True, out=out, lse=lse)
    check(batch, out, lse, causal=True)
    assert wide[:, [0, 5]].eq(7).all()
    assert wide[..., 128:].eq(7).all()
    assert wide_lse[:, [0, 1, 6]].eq(7).all()


@pytest.mark.parametrize("target", TARGETS)
def test_expanded_and_misaligned_keys(target: str) -> None:
    """A row stride of 0, and addresses that are no multiples of 16, are read from copies."""
    batch = Batch([(9, 40)], heads=(2, 2))
    row = torch.randn(1, 2, 128, dtype=torch.bfloat16)
    batch.k = row.expand(40, 2, 128)
    batch.v = torch.randn(40 * 2 * 128 + 3, dtype=torch.bfloat16)[3:].view(40, 2, 128)
    out, lse = batch.ragged(target, "aiter_asm", causal=False)
    check(batch, out, lse, causal=False)


@pytest.mark.parametrize("scale", [0.31, 0.0, -0.2, 1e-30, 50.0])
@pytest.mark.parametrize("target", TARGETS)
def test_scales(target: str, scale: float) -> None:
    """The kernels alone give NaN for a scale of 0 or below: keys are hidden by a product of -inf."""
    batch = Batch([(20, 50), (3, 9)], heads=(2, 1))
    before = batch.q.clone()
    out, lse = batch.ragged(target, "aiter_asm", causal=True, scale=scale, v_scale=2.0)
    check(batch, out, lse, causal=True, scale=scale, v_scale=2.0)
    assert batch.q.equal(before)


@pytest.mark.parametrize("target", TARGETS)
def test_a_scale_that_would_become_zero_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="sm_scale"):
        Batch([(3, 9)], heads=(2, 1)).ragged(target, "aiter_asm", causal=False, scale=-1e-38)


@pytest.mark.parametrize("target", TARGETS)
def test_without_lse_none_is_computed(target: str) -> None:
    batch = Batch([(20, 50), (300, 300)], heads=(2, 1))
    with rocade.emulate(target) as emulation:
        wrapper = batch.planned("aiter_asm", causal=True)
        out = wrapper.run(batch.q, batch.k, batch.v)
    check(batch, out, None, causal=True)
    assert len(emulation.results) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_nan_beside_a_request_does_not_leak(target: str) -> None:
    """The rows of K and V after its own are another request's."""
    batch, alone = Batch([(5, 9), (3, 40)], heads=(2, 1)), Batch([(5, 9)], heads=(2, 1))
    alone.q, alone.k, alone.v = batch.q[:5], batch.k[:9], batch.v[:9]
    for tensor in (batch.k, batch.v):
        tensor[9:] = torch.nan
    out, lse = batch.ragged(target, "aiter_asm", causal=False)
    check(alone, out[:5], lse[:5], causal=False)
    assert out[5:].isnan().all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_lengths_of_every_kind_of_tile(target: str, causal: bool) -> None:
    """All pairs of lengths around tiles and vectors as requests of one batch."""
    batch = Batch(lengths(), heads=(1, 1))
    out, lse = batch.ragged(target, "aiter_asm", causal=causal)
    check(batch, out, lse, causal=causal)

"""The attention kernel in the emulator: right within the conformance tolerances, and without any finding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.kernels.hip.attention.problem import SCHEDULES, TARGETS, Launch, Problem, make

import arch_caps
import rocade_emulator as emu
from rocade_kernels import attention_launch
from rocade_kernels.build import Instance, code

both = pytest.mark.parametrize("decode", [False, True], ids=["prefill", "decode"])
everywhere = pytest.mark.parametrize("target", TARGETS)


def check(problem: Problem, target: str, decode: bool, schedules: int = 1, **how: Any) -> Launch:
    """Run under some schedules; all give the same bits."""
    first: torch.Tensor | None = None
    for options in SCHEDULES[:schedules]:
        launch = Launch(problem, target, decode, **how)
        launch.check(launch.run(**options))
        out = launch.results()[0]
        assert first is None or torch.equal(first, out)
        first = out
    return launch


# What a mask or a layout may be, small enough to run in tenths of a second. Keyword arguments of `make`.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"heads": (2, 2)},
    "causal": {"heads": (2, 2), "causal": True},
    "group 4": {"heads": (4, 1), "causal": True},
    "group 7": {"heads": (7, 1), "causal": True},
    "window": {"heads": (2, 1), "window_left": 21},
    "causal window": {"heads": (2, 1), "causal": True, "window_left": 40},
    "window 0": {"heads": (2, 1), "causal": True, "window_left": 0},
    "soft cap": {"heads": (2, 1), "causal": True, "soft_cap": 20.0, "q_scale": 12.0},
    "negative scale": {"heads": (2, 1), "scale": -0.1},
    "scale 0": {"heads": (2, 1), "scale": 0.0},
    "value scale": {"heads": (2, 1), "v_scale": 0.25},
}
REQUESTS = ([1, 45, 0, 19, 3], [77, 45, 30, 150, 0])  # query and key counts: empty ones, one without keys


@both
@everywhere
@pytest.mark.parametrize("kind", KINDS)
def test_ragged(target: str, decode: bool, kind: str) -> None:
    check(make(*REQUESTS, dtype="bf16", **KINDS[kind]), target, decode)


@both
@everywhere
@pytest.mark.parametrize(("page_size", "hnd"), [(1, False), (5, True), (16, False), (16, True)])
def test_paged(target: str, decode: bool, page_size: int, hnd: bool) -> None:
    """Every slot that no request uses holds NaN."""
    problem = make(*REQUESTS, heads=(4, 2), causal=True, page_size=page_size, hnd=hnd)
    check(problem, target, decode)


@both
@everywhere
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_schedules(target: str, decode: bool, dtype: str) -> None:
    """Right, and the same bits, however waves take turns; several tiles of queries and of keys."""
    problem = make([70, 3], [200, 333], heads=(4, 1), dtype=dtype, page_size=5, causal=True)
    check(problem, target, decode, schedules=3)


@both
@everywhere
@pytest.mark.parametrize(("dim", "dtype"), [(64, "bf16"), (256, "fp16"), (80, "bf16"), (8, "bf16")])
def test_head_dims(target: str, decode: bool, dim: int, dtype: str) -> None:
    problem = make([9, 33], [140, 60], heads=(2, 1), dim=dim, dtype=dtype, page_size=16, causal=True)
    check(problem, target, decode)


@both
@everywhere
def test_split_keys(target: str, decode: bool) -> None:
    """Partial states, merged by the test; some splits see no key of some rows."""
    problem = make(*REQUESTS, heads=(4, 2), page_size=16, causal=True, window_left=50)
    check(problem, target, decode, split=32)


@both
@everywhere
def test_many_items_in_a_block(target: str, decode: bool) -> None:
    """LDS and registers of one item do not show in the next."""
    problem = make(*REQUESTS, heads=(4, 2), page_size=16, causal=True)
    check(problem, target, decode, schedules=3, blocks=2)


@both
@everywhere
def test_positions(target: str, decode: bool) -> None:
    problem = make(*REQUESTS, heads=(4, 2), causal=True, window_left=30)
    check(problem, target, decode, positions=True)


@both
@everywhere
def test_custom_mask(target: str, decode: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    masks = [torch.rand(n, m, generator=generator) < 0.6 for n, m in zip(*REQUESTS, strict=True)]
    masks[1][:] = False  # no key at all
    check(make(*REQUESTS, heads=(4, 2), masks=masks, window_left=60), target, decode)


@both
@everywhere
def test_partial_state(target: str, decode: bool) -> None:
    """A state of other keys is merged in: as if all keys had been there. A state of weight 0 may be NaN."""
    q_len, near, far = 20, 50, 70
    whole = make([q_len], [far + near], heads=(4, 2), dtype="bf16")
    before = Launch(
        Problem(whole.q, [q_len], [far], whole.k[:far], whole.v[:far], whole.rules, "bf16"), target
    )
    before.check(before.run())
    lse = before.lse.clone()
    lse[3] = float("-inf")
    out = before.out.clone()
    out[3] = float("nan")
    rest = Problem(whole.q, [q_len], [near], whole.k[far:], whole.v[far:], whole.rules, "bf16")
    launch = Launch(rest, target, decode, state=(out, lse))
    result = launch.run()
    assert not result.reports, result.describe()
    others = [r for r in range(q_len) if r != 3]
    ref, alone = whole.reference(), rest.reference()
    torch.testing.assert_close(launch.out[others].double(), ref.out[others], rtol=2**-7, atol=2**-8)
    torch.testing.assert_close(launch.lse[others].double(), ref.lse[others], rtol=0, atol=1e-4)
    torch.testing.assert_close(launch.out[3].double(), alone.out[3], rtol=2**-7, atol=2**-8)


@everywhere
def test_no_tile_outside_the_mask_is_visited(target: str) -> None:
    """Matrix work shows it: a window of 64 keys at the end of 1024 is at most three tiles of them."""
    launch = Launch(make([1], [1024], heads=(1, 1), causal=True, window_left=63), target)
    launch.check(result := launch.run())
    every = Launch(make([1], [1024], heads=(1, 1)), target)
    every.check(all_keys := every.run())
    assert result.counters.mfma_cycles * 5 < all_keys.counters.mfma_cycles


@both
@everywhere
@pytest.mark.parametrize("dim", [0, 1, 2], ids=["page", "row", "head"])
def test_offsets_beyond_32_bits(target: str, decode: bool, dim: int) -> None:
    """Pages, rows or heads so far apart that 32-bit offsets would wrap; only what exists is accessible."""
    problem = make([2], [40], heads=(4, 2), page_size=16, causal=True)
    far = 3 * 2**30  # elements from one to the next
    caches = []
    for cache in (problem.k, problem.v):
        buffer = emu.SparseBuffer(cache.shape[dim] * far * cache.element_size())
        strides = [far if d == dim else stride for d, stride in enumerate(cache.stride())]
        spread = buffer.torch(cache.dtype, tuple(cache.shape), tuple(strides))
        spread.copy_(cache)
        caches.append(spread)
    problem.k, problem.v = caches
    check(problem, target, decode)


@everywhere
def test_pages_outside_the_pool_are_not_read(target: str) -> None:
    """What comes out is not defined then; that nothing out of bounds is touched is."""
    problem = make([3], [64], heads=(2, 1), page_size=16)
    problem.pages[0][1:3] = [-1, 1 << 30]
    result = Launch(problem, target).run()
    assert not result.reports, result.describe()


@everywhere
@both
@pytest.mark.parametrize("dim", attention_launch.HEAD_DIMS)
def test_shapes_are_those_of_the_code(target: str, decode: bool, dim: int) -> None:
    facts = arch_caps.TARGETS[target]
    shape = attention_launch.shape(dim, decode, wave=facts.wave_size.value, lds_bytes=facts.lds_bytes.value)
    dtype = "fp16" if dim == 256 else "bf16" if dim == 64 else "fp16"
    built = code(Instance("attention", target, dtype, dim, "decode" if decode else ""))
    assert (built.resources.lds_bytes, built.resources.max_block) == (shape.lds_bytes, shape.threads)
    assert built.resources.spills == 0


def test_head_dims_that_no_kernel_serves() -> None:
    assert [attention_launch.kernel_dim(d) for d in (8, 64, 72, 128, 136, 256)] == [
        64,
        64,
        128,
        128,
        256,
        256,
    ]
    for bad in (0, -8, 12, 264):
        with pytest.raises(ValueError, match="multiple of 8"):
            attention_launch.kernel_dim(bad)

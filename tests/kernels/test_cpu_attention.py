"""The native attention kernels against fp64 numpy: every storage type, instruction set and mask."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.kernels import cases
from tests.kernels.cases import Case

from rocade_kernels.cpu_plans import ALWAYS_SHARE, NEVER_SHARE, isa_names

# Relative to the largest output: storage rounding, with room for fp32 sums.
OUT_ERROR = {"fp32": 3e-6, "fp16": 1e-3, "bf16": 8e-3}
LSE_ERROR = 4e-6


def isas() -> list[int]:
    return list(range(len(isa_names())))


def paged_case(
    seed: int,
    *,
    qo: list[int],
    kv: list[int],
    heads: tuple[int, int] = (4, 2),
    dims: tuple[int, int] = (64, 64),
    page: int = 16,
    dtype: str = "fp32",
    **options: Any,
) -> Case:
    rng = np.random.default_rng(seed)
    level = cases.paged_level(rng, qo, kv, heads[1], dims, page, dtype)
    q = cases.values(rng, (sum(qo), heads[0], dims[0]), dtype)
    return Case([level], q, dtype, heads[1], **options)


def check(case: Case, threads: int = 1) -> None:
    out, lse = cases.run(case, threads=threads)
    want, want_lse = cases.expected(case)
    np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(want_lse))
    finite = np.isfinite(want_lse)
    np.testing.assert_allclose(lse[finite], want_lse[finite], rtol=LSE_ERROR, atol=LSE_ERROR)
    scale = max(1.0, np.abs(want).max(initial=0.0))
    np.testing.assert_allclose(out, want, rtol=OUT_ERROR[case.dtype], atol=OUT_ERROR[case.dtype] * scale)


# (query lengths, KV lengths): decode, several rows, more rows than keys, empty ones, and enough rows to pack.
LENGTHS = (
    ([1, 1, 1], [33, 1, 70]),
    ([3, 0, 2], [5, 40, 129]),
    ([5, 1, 2], [3, 0, 17]),
    ([40, 2], [150, 64]),
)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_storage_and_instruction_sets(isa: int, dtype: str, lengths: tuple[list[int], list[int]]) -> None:
    check(paged_case(1, qo=lengths[0], kv=lengths[1], dtype=dtype, causal=True, plan_options={"isa": isa}))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize(
    ("dim", "group", "page"),
    [(8, 1, 1), (32, 2, 3), (40, 3, 16), (80, 5, 64), (96, 7, 1), (128, 8, 16), (192, 1, 3), (256, 16, 16)],
)
def test_shapes(isa: int, dim: int, group: int, page: int) -> None:
    dims = (dim, 64 if dim > 64 else dim + 8)
    check(
        paged_case(
            2, qo=[1, 4], kv=[30, 47], heads=(2 * group, 2), dims=dims, page=page, plan_options={"isa": isa}
        )
    )


MASKS: tuple[dict[str, Any], ...] = (
    {"causal": True},
    {"window": 0},
    {"window": 9},
    {"causal": True, "window": 20},
    {"cap": 2.0},
    {"cap": 3e4},  # far above the logits: an absolute error of tanh would show, multiplied by the cap
    {"alibi": True},
    {"causal": True, "window": 30, "cap": 1.5, "alibi": True, "v_scale": 0.25},
)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("options", MASKS)
@pytest.mark.parametrize("lengths", LENGTHS[1:])
def test_masks(isa: int, options: dict[str, Any], lengths: tuple[list[int], list[int]]) -> None:
    check(paged_case(3, qo=lengths[0], kv=lengths[1], heads=(6, 2), plan_options={"isa": isa}, **options))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("window", [-1, 12])
def test_custom_mask(isa: int, window: int) -> None:
    qo, kv = [3, 1, 30], [20, 9, 141]
    rng = np.random.default_rng(4)
    masks = [rng.random((m, n)) < 0.6 for m, n in zip(qo, kv, strict=True)]
    masks[0][1] = False  # a row that sees nothing
    check(paged_case(4, qo=qo, kv=kv, masks=masks, window=window, causal=True, plan_options={"isa": isa}))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [2, 60])
def test_nan_in_keys_that_a_mask_hides_stays_there(isa: int, rows: int) -> None:
    case = paged_case(5, qo=[rows], kv=[rows + 30], causal=True, plan_options={"isa": isa})
    level, last = case.levels[0], rows + 29
    page = level.pages[level.kv_indptr[0] + last // 16]
    level.k[page, last % 16] = level.v[page, last % 16] = np.nan
    out, lse = cases.run(case)
    assert np.isfinite(out[:-1]).all()
    assert np.isfinite(lse[:-1]).all()
    assert np.isnan(out[-1]).all()  # the last row sees it, and says so
    level.k[page, last % 16] = level.v[page, last % 16] = 0
    want, _ = cases.expected(case)
    np.testing.assert_allclose(out[:-1], want[:-1], atol=3e-6)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [1, 30])
def test_pages_outside_the_pool_are_skipped(isa: int, rows: int) -> None:
    case = paged_case(6, qo=[rows], kv=[100], page=8, plan_options={"isa": isa})
    level = case.levels[0]
    first = int(level.kv_indptr[0])
    kept = [x for x in range(13) if x not in (0, 5, 12)]
    good = level.pages[[first + x for x in kept]].copy()
    level.pages[first], level.pages[first + 5], level.pages[first + 12] = 10**9, -1, level.k.shape[0]
    out, lse = cases.run(case)
    level.pages = np.concatenate([np.zeros(first, np.int32), good])
    level.kv_len[0] = 8 * len(kept)
    level.kv_indptr = cases.indptr([len(kept)], first)
    want, want_lse = cases.expected(case)
    np.testing.assert_allclose(out, want, atol=3e-6)
    np.testing.assert_allclose(lse, want_lse, atol=LSE_ERROR, rtol=LSE_ERROR)


def test_any_strides() -> None:
    case = paged_case(7, qo=[1, 20], kv=[40, 50])
    level = case.levels[0]
    for name in ("k", "v"):
        pool = getattr(level, name)
        wide = np.full((pool.shape[0], pool.shape[2] + 1, pool.shape[1] + 2, 80), np.nan, np.float32)
        view = wide.transpose(0, 2, 1, 3)[:, : pool.shape[1], : pool.shape[2], :64]  # HND with gaps
        view[...] = pool
        setattr(level, name, view)
    wide_q = np.full((21, 6, 70), np.nan, np.float32)
    wide_q[:, :4, :64] = case.q
    case.q = wide_q[:, :4, :64]
    check(case)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_ragged(isa: int, dtype: str) -> None:
    rng = np.random.default_rng(8)
    qo, kv = [5, 0, 1, 60], [50, 3, 0, 90]
    level = cases.dense_level(rng, qo, kv, 2, (64, 48), dtype)
    q = cases.values(rng, (sum(qo), 4, 64), dtype)
    check(Case([level], q, dtype, 2, causal=True, plan_options={"isa": isa}))


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": 25, "alibi": True}])
@pytest.mark.parametrize("share", [NEVER_SHARE, ALWAYS_SHARE, -1])
@pytest.mark.parametrize("threads", [1, 3])
def test_three_levels(options: dict[str, Any], share: int, threads: int) -> None:
    rng = np.random.default_rng(9)
    leaf = [1, 2, 0, 5, 1, 40]
    levels = [
        cases.paged_level(rng, [sum(leaf)], [37], 2, (32, 32), 16, "fp32"),
        cases.dense_level(rng, [sum(leaf[:3]), sum(leaf[3:])], [0, 30], 2, (32, 32), "fp32"),
        cases.paged_level(rng, leaf, [3, 20, 7, 9, 0, 70], 2, (32, 32), 4, "fp32"),
    ]
    q = cases.values(rng, (sum(leaf), 6, 32), "fp32")
    check(Case(levels, q, "fp32", 2, plan_options={"share": share, "threads": threads}, **options), threads)


@pytest.mark.parametrize("split", [{}, {"fixed_split_size": 7}, {"disable_split": 1}])
def test_partial_state_is_one_more_range(split: dict[str, int]) -> None:
    case = paged_case(10, qo=[2, 3], kv=[0, 40], v_scale=0.5, plan_options=split)
    rng = np.random.default_rng(11)
    state, lse = (
        rng.standard_normal((5, 4, 64)).astype(np.float32),
        rng.standard_normal((5, 4)).astype(np.float32),
    )
    lse[1], lse[3] = -np.inf, -np.inf
    state[1] = np.nan  # weightless, so it must not matter
    case.partial = state, lse
    check(case)


@pytest.mark.parametrize("isa", isas())
def test_long_sequences_split_over_threads(isa: int) -> None:
    case = paged_case(12, qo=[1], kv=[3000], heads=(4, 1), plan_options={"threads": 4, "isa": isa})
    plan = cases.make_plan(case)
    assert plan.partial_rows > 1
    check(case, threads=4)


@pytest.mark.parametrize("options", [{"fixed_split_size": 48}, {"disable_split": 1}])
@pytest.mark.parametrize("qo", [1, 30])
def test_batch_invariance(options: dict[str, int], qo: int) -> None:
    case = paged_case(
        13, qo=[qo, 2, 1], kv=[700, 90, 2000], dtype="bf16", plan_options={"threads": 4, **options}
    )
    together, lse = cases.run(case, threads=4)
    level = case.levels[0]
    level.qo_indptr, level.kv_indptr, level.kv_len = (
        level.qo_indptr[:2],
        level.kv_indptr[:2],
        level.kv_len[:1],
    )
    case.q, case.plan_options["threads"] = case.q[:qo], 1
    alone, alone_lse = cases.run(case)
    np.testing.assert_array_equal(together[:qo], alone)
    np.testing.assert_array_equal(lse[:qo], alone_lse)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [1, 60])
def test_rounding_does_not_grow_with_the_number_of_keys(isa: int, rows: int) -> None:
    keys = 400_000 if rows == 1 else 60_000
    case = paged_case(17, qo=[rows], kv=[keys], heads=(1, 1), dims=(8, 24), plan_options={"isa": isa})
    case.q[:] /= 100
    case.levels[0].v[:] = np.float32(0.8314287)  # one value: what is rounded off has one sign, and adds up
    out, _ = cases.run(case)
    np.testing.assert_allclose(out, case.levels[0].v[0, 0, 0, 0], rtol=4e-6)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_large_logits_do_not_overflow(dtype: str) -> None:
    case = paged_case(14, qo=[2], kv=[50], dtype=dtype, sm_scale=300.0)
    check(case)


def test_a_key_of_infinite_logit_shows_as_nan() -> None:
    case = paged_case(15, qo=[1], kv=[20])
    level = case.levels[0]
    level.k[level.pages[level.kv_indptr[0]], 3] = np.inf
    out, _ = cases.run(case)
    assert np.isnan(out).any()  # inf - inf: never a plausible number


@pytest.mark.parametrize(("heads", "rows"), list(itertools.product([(1, 1), (64, 1), (14, 2)], [1, 17])))
def test_unusual_head_counts(heads: tuple[int, int], rows: int) -> None:
    check(paged_case(16, qo=[rows], kv=[45], heads=heads, dims=(16, 16)))

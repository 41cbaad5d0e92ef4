"""The plain backend against the fp64 oracle, feature by feature. Unused slots and results start as NaN."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from tests.rocade.backends.build import TORCH, Call, Spec, build, variant
from tests.rocade.backends.check import assert_close

from arch_caps import DType, Layout, MaskKind, PosEncoding
from rocade._plan import State
from rocade.backends import REGISTRY
from rocade.conformance import oracle, oracle_states

BACKEND = REGISTRY["torch"]
MIXED = [([5, 1, 0, 3, 40], [5, 30, 4, 0, 70])]  # prefill, decode, no rows, no keys, append
DECODE = [([1] * 6, [1, 16, 17, 0, 300, 33])]
LONG = [
    ([70, 1, 300], [2100, 1500, 40])
]  # several tiles of rows, several chunks of keys, more rows than keys
CASCADE = [([9], [50]), ([4, 5], [0, 33]), ([1, 2, 1, 0, 1, 4], [3, 20, 1, 7, 0, 2])]


def check(spec: Spec) -> None:
    call = build(spec)
    got = call.answer(BACKEND.plan(call.request, call.problem))
    assert_close(got, call.expected, TORCH[spec.dtype], last_position=last_position(spec))


def last_position(spec: Spec) -> float:
    return float(sum(max(keys) for _, keys in spec.levels)) if spec.pos is PosEncoding.ROPE_LLAMA else 0.0


@pytest.mark.parametrize("mask", list(MaskKind))
@pytest.mark.parametrize("page_size", [0, 1, 3, 16])
@pytest.mark.parametrize("levels", [MIXED, DECODE, LONG], ids=["mixed", "decode", "long"])
def test_masks(levels: list[tuple[list[int], list[int]]], page_size: int, mask: MaskKind) -> None:
    check(Spec(levels, page_size=page_size, mask=mask))


@pytest.mark.parametrize("window_left", [0, 1, 20])
@pytest.mark.parametrize("mask", list(MaskKind))
@pytest.mark.parametrize("levels", [MIXED, DECODE, LONG], ids=["mixed", "decode", "long"])
def test_windows(levels: list[tuple[list[int], list[int]]], mask: MaskKind, window_left: int) -> None:
    check(Spec(levels, page_size=16, mask=mask, window_left=window_left))


@pytest.mark.parametrize("pos", list(PosEncoding))
@pytest.mark.parametrize("cap", [0.0, 0.7, 30.0])
def test_soft_cap_and_positions(cap: float, pos: PosEncoding) -> None:
    """ALiBi is added before the cap; both kinds of positions are global and bottom-right."""
    for page_size, mask in product((0, 3), (MaskKind.NONE, MaskKind.CAUSAL)):
        check(Spec(MIXED, page_size=page_size, mask=mask, cap=cap, pos=pos))


def test_rope_scale_and_theta() -> None:
    facts: dict[str, object] = {"rope_scale": 4.0, "rope_theta": 5e5}
    check(Spec(MIXED, page_size=3, pos=PosEncoding.ROPE_LLAMA, facts=facts))


@pytest.mark.parametrize("heads", [(12, 12), (6, 3), (10, 2), (7, 1), (64, 1)])
def test_any_group_size(heads: tuple[int, int]) -> None:
    for pos in PosEncoding:
        check(Spec(MIXED, heads=heads, page_size=3, mask=MaskKind.CAUSAL, pos=pos))


@pytest.mark.parametrize("dims", [(8, 24), (192, 128), (80, 80), (256, 256)])
def test_head_dims(dims: tuple[int, int]) -> None:
    check(Spec(MIXED, dims=dims, page_size=3, mask=MaskKind.CAUSAL))
    check(Spec(MIXED, dims=dims))


@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16, DType.BF16])
@pytest.mark.parametrize("kv_dtype", [None, *(d for d in DType if d.is_fp8)])
def test_dtypes(kv_dtype: DType | None, dtype: DType) -> None:
    for page_size in (0, 3, 2048):
        check(Spec(MIXED, page_size=page_size, dtype=dtype, kv_dtype=kv_dtype, mask=MaskKind.CAUSAL))


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("packed_cache", [False, True])
@pytest.mark.parametrize("dtype", [DType.FP32, DType.BF16, DType.FP8_E4M3])
def test_layouts(layout: Layout, packed_cache: bool, dtype: DType) -> None:
    spec = Spec(MIXED, layout=layout, kv_dtype=dtype, mask=MaskKind.CAUSAL)
    check(spec)
    check(variant(spec, page_size=16, packed_cache=packed_cache))


@pytest.mark.parametrize("page_size", [1023, 1025, 2048])
def test_large_pages(page_size: int) -> None:
    """Pages larger than a step are read token by token."""
    check(Spec(LONG, page_size=page_size, mask=MaskKind.CAUSAL, window_left=900))


@pytest.mark.parametrize("mask", [MaskKind.NONE, MaskKind.CAUSAL])
@pytest.mark.parametrize("page_size", [0, 1, 16])
@pytest.mark.parametrize("pos", list(PosEncoding))
def test_cascade_is_one_sequence(pos: PosEncoding, page_size: int, mask: MaskKind) -> None:
    """Positions, windows and causal count from the first level's first key."""
    for window_left, cap in ((-1, 0.0), (4, 0.0), (40, 2.0)):
        check(Spec(CASCADE, page_size=page_size, mask=mask, window_left=window_left, cap=cap, pos=pos))


def test_many_levels() -> None:
    levels = [([6], [3])] * 4 + [([2, 4], [1, 9])] * 3 + [([1, 1, 2, 2], [1, 2, 3, 4])]
    check(Spec(levels, page_size=3, mask=MaskKind.CAUSAL, pos=PosEncoding.ALIBI))


def test_more_query_rows_than_keys_across_levels() -> None:
    """Rows of a request with a short suffix reach back into the shared prefix; some see no key at all."""
    check(Spec([([12], [4]), ([12], [5])], page_size=3, mask=MaskKind.CAUSAL))


@pytest.mark.parametrize("levels", [MIXED, CASCADE], ids=["mixed", "cascade"])
def test_partial_state_is_merged_after_v_scale(levels: list[tuple[list[int], list[int]]]) -> None:
    call = build(Spec(levels, page_size=3, v_scale=0.25))
    gen = torch.Generator().manual_seed(1)
    out, lse = torch.randn(call.q.shape, generator=gen), torch.randn(call.q.shape[:2], generator=gen)
    lse[::3] = float("-inf")  # a partial state without keys counts for nothing, whatever it holds
    out[::3] = float("nan")
    got = call.answer(BACKEND.plan(call.request, call.problem), State(out, lse))
    assert_close(got, merged(call, out, lse))


def merged(call: Call, out: torch.Tensor, lse: torch.Tensor) -> oracle.Reference:
    want = call.expected
    both = oracle_states.merge_state(want.out, want.lse, out, lse)
    return want._replace(out=both.v, lse=both.s, out_mass=both.v_mass + want.out_mass)


def test_partial_state_may_be_the_result() -> None:
    call = build(Spec(MIXED))
    plan = BACKEND.plan(call.request, call.problem)
    args = call.args()
    args.out.normal_()
    assert args.lse is not None
    args.lse.normal_()
    want = merged(call, args.out.clone(), args.lse.clone())
    args.partial = State(args.out, args.lse)
    plan.run(args)
    assert_close(State(args.out, args.lse), want)


def test_without_lse() -> None:
    call = build(Spec(MIXED))
    plan = BACKEND.plan(call.request, call.problem)
    args = call.args()
    args.lse = None
    plan.run(args)
    assert torch.equal(args.out, call.answer(plan).out)


def test_no_requests() -> None:
    check_empty = build_empty()
    got = check_empty.answer(BACKEND.plan(check_empty.request, check_empty.problem))
    assert got.out.shape == (0, 4, 16)


def build_empty() -> Call:
    call = build(Spec([([0], [0])], page_size=16))
    assert call.problem.num_rows == 0
    return call

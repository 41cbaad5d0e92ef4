"""MultiLevelCascadeAttentionWrapper against fp64 attention over each request's levels as one sequence."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from tests.rocade.cascade_cases import HEAD_DIM, PAGE_SIZE, WORKSPACE, Case, ints, make

from rocade.cascade import MultiLevelCascadeAttentionWrapper, merge_state

TOLERANCE = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def planned(case: Case, *, backend: str = "auto", **flags: object) -> MultiLevelCascadeAttentionWrapper:
    """A wrapper with the case planned."""
    wrapper = MultiLevelCascadeAttentionWrapper(len(case.qo_indptr), WORKSPACE, backend=backend)
    heads = case.q.shape[1], case.k.shape[2]
    flags = {"q_data_type": case.q.dtype, "kv_data_type": case.k.dtype} | flags
    wrapper.plan(*case.arrays, *heads, HEAD_DIM, PAGE_SIZE, **flags)
    return wrapper


def check(case: Case, got: tuple[torch.Tensor, torch.Tensor], **rules: object) -> None:
    """Compare out and lse with fp64."""
    expected, tolerance = case.expected(**rules), TOLERANCE[case.q.dtype]
    assert got[0].dtype == case.q.dtype
    assert got[1].dtype == torch.float32
    torch.testing.assert_close(got[0].double(), expected.out, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(got[1].double(), expected.lse, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("max_rows", [1, 6])
@pytest.mark.parametrize("num_levels", [1, 2, 3, 4])
def test_levels_read_as_one_sequence(num_levels: int, max_rows: int, backend: str) -> None:
    for seed in range(4):
        case = make(seed, num_levels, max_rows=max_rows)
        got = planned(case, backend=backend).run(case.q, (case.k, case.v), return_lse=True)
        check(case, got)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize(
    "flags",
    [
        {"causal": True},
        {"window_left": 0},
        {"window_left": 9},
        {"causal": True, "window_left": 17},
        {"causal": True, "logits_soft_cap": 2.0},
        {"causal": True, "pos_encoding_mode": "ALIBI"},
        {"window_left": 9, "pos_encoding_mode": "ROPE_LLAMA", "rope_scale": 2.0, "rope_theta": 1e3},
        {"sm_scale": 0.7},
    ],
    ids=str,
)
@pytest.mark.parametrize("max_rows", [1, 12])
def test_positions_are_global(flags: dict[str, object], max_rows: int, backend: str) -> None:
    # 12 rows over levels of a few keys: some queries stand inside the shared levels.
    rules = {"soft_cap": "logits_soft_cap", "pos_encoding": "pos_encoding_mode", "scale": "sm_scale"}
    named = {next((k for k, v in rules.items() if v == name), name): value for name, value in flags.items()}
    for seed in range(3):
        case = make(seed, 3, max_rows=max_rows, longest=13)
        got = planned(case, backend=backend, **flags).run(case.q, (case.k, case.v), return_lse=True)
        check(case, got, **named)


@pytest.mark.parametrize("heads", [(1, 1), (5, 1), (6, 2), (16, 1), (7, 7)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dtypes_and_group_sizes(dtype: torch.dtype, heads: tuple[int, int]) -> None:
    case = make(1, 2, max_rows=3, dtype=dtype, heads=heads)
    check(case, planned(case).run(case.q, (case.k, case.v), return_lse=True))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2fnuz])
def test_fp8_cache_with_scales(dtype: torch.dtype) -> None:
    case = make(2, 3, dtype=dtype)
    got = planned(case).run(
        case.q, (case.k, case.v), q_scale=2.0, k_scale=0.25, v_scale=torch.tensor(3.0), return_lse=True
    )
    check(case, got, scale=0.5 / math.sqrt(HEAD_DIM), v_scale=3.0)


def test_layouts_and_cache_forms_give_the_same_bits() -> None:
    case = make(3, 2)
    expected = planned(case).run(case.q, (case.k, case.v))
    fused = torch.stack((case.k, case.v), 1)
    assert torch.equal(planned(case).run(case.q, fused), expected)
    hnd = MultiLevelCascadeAttentionWrapper(2, WORKSPACE, "HND")
    hnd.plan(*case.arrays, 4, 2, HEAD_DIM, PAGE_SIZE, q_data_type=torch.float32)
    assert torch.equal(hnd.run(case.q, fused.transpose(2, 3).contiguous()), expected)
    assert torch.equal(hnd.forward(case.q, (case.k.transpose(1, 2), case.v.transpose(1, 2))), expected)


def test_out_lse_and_strided_queries() -> None:
    case = make(4, 2, max_rows=4)
    wrapper = planned(case, causal=True)
    expected = wrapper.run(case.q, (case.k, case.v), return_lse=True)
    out = torch.full((case.q.shape[0], 4, HEAD_DIM + 8), math.nan)[..., :HEAD_DIM]
    lse = torch.full((case.q.shape[0], 4), math.nan)
    wide = torch.full((case.q.shape[0], 8, HEAD_DIM), math.nan)[:, 2:6]
    wide.copy_(case.q)
    got = wrapper.run(wide, (case.k, case.v), out=out, lse=lse)
    assert got is out
    torch.testing.assert_close((out, lse), expected, rtol=0, atol=0)
    assert wrapper.run_return_lse(case.q, (case.k, case.v), out=out)[0] is out
    with pytest.raises(ValueError, match=r"^out: got"):
        wrapper.run(case.q, (case.k, case.v), out=out[:1])


def test_a_partial_state_is_merged_in() -> None:
    case, other = make(5, 2), make(6, 2)
    cache = (case.k, case.v)
    state = planned(other).run(other.q, (other.k, other.v), return_lse=True)
    got = planned(case).run(case.q, cache, partial_state=state, return_lse=True)
    expected = merge_state(*planned(case).run(case.q, cache, return_lse=True), *state)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_nothing_to_attend_to_and_nobody_to_attend() -> None:
    wrapper = MultiLevelCascadeAttentionWrapper(2, WORKSPACE)
    cache = torch.full((1, 2, PAGE_SIZE, 2, HEAD_DIM), math.nan)
    none, rows = ints([]), [ints([0, 2]), ints([0, 1, 2])]
    wrapper.plan(
        rows,
        [ints([0, 0]), ints([0, 0, 0])],
        [none, none],
        [ints([0]), ints([0, 3])],
        4,
        2,
        HEAD_DIM,
        PAGE_SIZE,
        q_data_type="float32",
    )
    out, lse = wrapper.run(torch.ones(2, 4, HEAD_DIM), cache, return_lse=True)
    assert out.eq(0).all()
    assert lse.eq(-math.inf).all()
    one = ints([0])
    wrapper.plan(
        [one, one], [one, one], [none, none], [none, none], 4, 2, HEAD_DIM, PAGE_SIZE, q_data_type="float32"
    )
    assert wrapper.run(torch.ones(0, 4, HEAD_DIM), cache).shape == (0, 4, HEAD_DIM)


def test_the_call_of_vllm() -> None:
    case = make(7, 2, dtype=torch.bfloat16, requests=3, longest=90)
    # One shared prefix of two full pages; the indptr of the rest is a slice that does not start at 0.
    lens, tables = case.kv_lens[1], case.tables[1]
    owner = lens.index(max(lens))
    assert lens[owner] > 2 * PAGE_SIZE
    case.qo_indptr[0], case.tables[0], case.kv_lens[0] = [0, 3], [tables[owner][:2]], [2 * PAGE_SIZE]
    tables[owner], lens[owner] = tables[owner][2:], lens[owner] - 2 * PAGE_SIZE
    qo, indptr, indices, last = case.arrays
    wrapper = MultiLevelCascadeAttentionWrapper(2, WORKSPACE, "NHD")
    wrapper.plan(
        [qo[0], qo[1]],
        [indptr[0], indptr[1] + 5],
        [indices[0], torch.cat((ints([999] * 5), indices[1], ints([999] * 9)))],
        [last[0], last[1]],
        4,
        2,
        HEAD_DIM,
        PAGE_SIZE,
        causal=True,
        sm_scale=0.3,
        window_left=-1,
        logits_soft_cap=0.0,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
    )
    check(case, wrapper.run_return_lse(case.q, (case.k, case.v)), causal=True, scale=0.3)


def test_planning_again_and_old_names() -> None:
    first, second = make(8, 2), make(9, 2, requests=7)
    wrapper = planned(first)
    check(first, wrapper.run_return_lse(first.q, (first.k, first.v)))
    wrapper.begin_forward(*second.arrays, 4, 2, HEAD_DIM, PAGE_SIZE, True, q_data_type="float32")
    check(second, wrapper.run_return_lse(second.q, (second.k, second.v)), causal=True)
    wrapper.reset_workspace_buffer(torch.empty_like(WORKSPACE), [torch.empty(8, dtype=torch.uint8)] * 2)
    check(second, wrapper.run_return_lse(second.q, (second.k, second.v)), causal=True)
    wrapper.end_forward()
    size = wrapper.workspace_size(*first.arrays, 4, 2, HEAD_DIM, PAGE_SIZE, q_data_type="float32")
    assert size[0] >= 0
    assert wrapper.backend in ("cpu", "torch")


def buffers(case: Case) -> list[list[torch.Tensor]]:
    """Graph buffers that fit the case, with spare room for page ids."""
    qo, indptr, indices, last = case.arrays
    room = [torch.full((ids.numel() + 8,), 7, dtype=torch.int32) for ids in indices]
    return [
        [torch.empty_like(t) for t in qo],
        [torch.empty_like(t) for t in indptr],
        room,
        [t * 0 for t in last],
    ]


def test_graph_mode_reads_the_callers_buffers_and_pads_rows() -> None:
    case = make(10, 2)
    given = buffers(case)
    wrapper = MultiLevelCascadeAttentionWrapper(2, WORKSPACE, "NHD", True, *given)
    wrapper.plan(*case.arrays, 4, 2, HEAD_DIM, PAGE_SIZE, q_data_type="float32")
    for kept, array in zip(given, case.arrays, strict=True):
        for buffer, values in zip(kept, array, strict=True):
            assert torch.equal(buffer[: values.numel()], values)
    padded = torch.cat((case.q, torch.full((2, 4, HEAD_DIM), math.nan)))
    out, lse = wrapper.run(padded, (case.k, case.v), return_lse=True)
    check(case, (out[:-2], lse[:-2]))
    assert out[-2:].eq(0).all()
    assert lse[-2:].eq(-math.inf).all()
    other = make(10, 2, requests=4)
    with pytest.raises(ValueError, match=r"fixed by the graph buffers"):
        wrapper.plan(*other.arrays, 4, 2, HEAD_DIM, PAGE_SIZE, q_data_type="float32")
    with pytest.raises(ValueError, match=r"^qo_indptr_buf_arr: got None"):
        MultiLevelCascadeAttentionWrapper(2, WORKSPACE, "NHD", True)


def broken(name: str, level: int, values: list[int] | None) -> tuple[list[torch.Tensor], ...]:
    """Plan arrays of a two-level cascade of 4 rows with one array replaced, or left out."""
    arrays = {
        "qo": [[0, 2, 4], [0, 1, 2, 3, 4]],
        "indptr": [[0, 1, 2], [0, 1, 2, 3, 4]],
        "indices": [[0, 1], [2, 3, 4, 5]],
        "last": [[4, 4], [1, 2, 3, 4]],
    }
    if values is None:
        arrays[name].pop(level)
    else:
        arrays[name][level] = values
    return tuple([ints(x) for x in column] for column in arrays.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("qo", 0, [0, 2, 5]), r"qo_indptr_arr\[0\]: got 5 rows, expected 4"),
        (("qo", 0, [0, 3, 4]), None),
        (("qo", 1, [0, 1, 3, 3, 4]), r"qo_indptr_arr\[0\]\[1\]: got 2, expected a boundary"),
        (("qo", 1, [0, 1, 3, 2, 4]), r"qo_indptr_arr\[1\]\[3\]: got 2"),
        (("qo", 1, None), "qo_indptr_arr: got 1 arrays, expected a list of 2"),
        (("indptr", 1, [0, 1, 2, 3]), r"paged_kv_indptr_arr\[1\]: got 4 entries"),
        (("indptr", 0, [0, 2, 1]), r"paged_kv_indptr_arr\[0\]\[2\]: got 1"),
        (("indices", 0, [0]), r"paged_kv_indices_arr\[0\]: got 1 page indices"),
        (("indices", 1, [2, -3, 4, 5]), r"paged_kv_indices_arr\[1\]\[1\]: got -3"),
        (("last", 0, [4, 5]), r"paged_kv_last_page_len\[0\]\[1\]: got 5"),
        (("last", 1, [1, 0, 3, 4]), r"paged_kv_last_page_len\[1\]\[1\]: got 0"),
    ],
)
def test_malformed_levels_are_named(change: tuple[str, int, list[int] | None], message: str | None) -> None:
    wrapper = MultiLevelCascadeAttentionWrapper(2, WORKSPACE)
    if message is None:
        wrapper.plan(*broken(*change), 4, 2, HEAD_DIM, PAGE_SIZE)
        return
    with pytest.raises(ValueError, match=f"^{message}"):
        wrapper.plan(*broken(*change), 4, 2, HEAD_DIM, PAGE_SIZE)
    with pytest.raises(RuntimeError, match=r"call plan\(\) before"):
        wrapper.run(torch.ones(4, 4, HEAD_DIM).half(), torch.ones(6, 2, PAGE_SIZE, 2, HEAD_DIM).half())


def test_malformed_tensors_are_named() -> None:
    case = make(11, 2)
    wrapper = planned(case)
    for q, cache, message in (
        (case.q.half(), (case.k, case.v), r"^q: got torch.float16"),
        (case.q[:-1], (case.k, case.v), r"^q: got shape"),
        (case.q, (case.k[:2], case.v[:2]), r"^paged_kv_cache: got 2 pages"),
        (case.q, (case.k.half(), case.v.half()), r"^paged_kv_cache \(K\): got torch.float16"),
        (case.q, case.k, r"^paged_kv_cache: got"),
    ):
        with pytest.raises(ValueError, match=message):
            wrapper.run(q, cache)
    with pytest.raises(ValueError, match=r"^num_levels: got 0"):
        MultiLevelCascadeAttentionWrapper(0, WORKSPACE)
    with pytest.raises(NotImplementedError, match="use_fp16_qk_reduction"):
        planned(case, use_fp16_qk_reduction=True)


def test_compiled_run_survives_planning_again() -> None:
    cases = [make(12, 2), make(13, 2)]
    wrapper = planned(cases[0])
    compilations = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        compilations.append(graph)
        return graph

    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = wrapper.run(q * 1.0, (k, v), return_lse=True)
        return out + 0.0, lse

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=True)
    for case in cases:
        wrapper.plan(*case.arrays, 4, 2, HEAD_DIM, PAGE_SIZE, q_data_type="float32")
        check(case, compiled(case.q, case.k, case.v))
    assert len(compilations) == 1


def test_levels_that_share_nothing_equal_one_level() -> None:
    case = make(14, 1, max_rows=4)
    flat = planned(case, causal=True).run(case.q, (case.k, case.v))
    rows = sum(n > 0 for n in (b - a for a, b in pairwise(case.qo_indptr[0])))
    assert rows > 1
    empty = [ints([0, case.q.shape[0]]), ints([0, 0]), ints([]), ints([0])]
    arrays = [[extra, array[0]] for extra, array in zip(empty, case.arrays, strict=True)]
    wrapper = MultiLevelCascadeAttentionWrapper(2, WORKSPACE)
    wrapper.plan(*arrays, 4, 2, HEAD_DIM, PAGE_SIZE, True, q_data_type="float32")
    torch.testing.assert_close(wrapper.run(case.q, (case.k, case.v)), flat, rtol=1e-5, atol=1e-5)

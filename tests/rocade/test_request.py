"""Where FlashInfer's arguments become a Request: each default, each spelling, each refusal."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from arch_caps import DType, MaskKind, Op, PosEncoding, Request
from rocade import _request


def build(**given: Any) -> Request:
    plain = {"num_qo_heads": 8, "num_kv_heads": 2, "head_dim_qk": 64, "q_dtype": "float16"}
    return _request.attention(Op.BATCH_PREFILL_PAGED, **{**plain, **given})


def test_every_default_is_filled_in() -> None:
    assert build(page_size=16) == Request(
        op=Op.BATCH_PREFILL_PAGED,
        q_dtype=DType.FP16,
        kv_dtype=DType.FP16,
        o_dtype=DType.FP16,
        num_qo_heads=8,
        num_kv_heads=2,
        head_dim_qk=64,
        head_dim_vo=64,
        page_size=16,
        mask=MaskKind.NONE,
        window_left=-1,
        logits_soft_cap=0.0,
        pos_encoding=PosEncoding.NONE,
        sm_scale=1 / math.sqrt(64),
        rope_scale=1.0,
        rope_theta=1e4,
    )


def test_sm_scale_defaults_to_the_query_head_dim() -> None:
    assert build(head_dim_qk=192, head_dim_vo=128).sm_scale == 1 / math.sqrt(192)


@pytest.mark.parametrize("window", [-1, -2, -100, -(2**70), 2**31, 2**70])
def test_every_window_without_a_limit_is_the_same_request(window: int) -> None:
    assert build(window_left=window) == build()


def test_window_zero_is_a_window() -> None:
    assert build(window_left=0).window_left == 0


@pytest.mark.parametrize("cap", [None, 0, 0.0])
def test_no_soft_cap_is_spelled_none_or_zero(cap: float | None) -> None:
    assert build(logits_soft_cap=cap) == build()


@pytest.mark.parametrize("spelling", ["bfloat16", "torch.bfloat16", "bf16", torch.bfloat16])
def test_dtypes_come_as_objects_or_names(spelling: torch.dtype | str) -> None:
    request = build(q_dtype=spelling)
    assert (request.q_dtype, request.kv_dtype, request.o_dtype) == (DType.BF16,) * 3


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float8_e4m3fn, DType.FP8_E4M3),
        ("float8_e5m2", DType.FP8_E5M2),
        (torch.float8_e4m3fnuz, DType.FP8_E4M3_FNUZ),
        ("fp8_e5m2_fnuz", DType.FP8_E5M2_FNUZ),
    ],
)
def test_the_cache_may_have_8_bit_floats(dtype: torch.dtype | str, expected: DType) -> None:
    request = build(kv_dtype=dtype)
    assert (request.kv_dtype, request.o_dtype) == (expected, DType.FP16)


def test_a_custom_mask_overrides_causal() -> None:
    assert build(causal=True, custom_mask=True).mask is MaskKind.CUSTOM
    assert build(causal=True).mask is MaskKind.CAUSAL


def test_fixed_split_size_counts_pages() -> None:
    assert build(page_size=16, fixed_split_size=4).fixed_split_size == 64
    assert build(fixed_split_size=64).fixed_split_size == 64
    assert build(page_size=16, fixed_split_size=-1).fixed_split_size is None


def test_numbers_may_be_one_element_tensors() -> None:
    assert build(sm_scale=torch.tensor(0.25)).sm_scale == 0.25
    assert _request.scale("k_scale", torch.tensor([2.0])) == 2.0
    assert _request.scale("k_scale", None) == 1.0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"num_qo_heads": 7}, "num_qo_heads: got 7, expected a multiple of num_kv_heads"),
        ({"num_kv_heads": 0}, "num_kv_heads: got 0"),
        ({"num_qo_heads": 8.0}, "num_qo_heads: got 8.0, expected an integer"),
        ({"head_dim_qk": -64}, "head_dim_qk: got -64"),
        ({"head_dim_vo": 0}, "head_dim_vo: got 0"),
        ({"page_size": -1}, "page_size: got -1"),
        ({"q_dtype": "float64"}, "q_data_type: got 'float64', expected one of"),
        ({"q_dtype": torch.float8_e4m3fn}, "q_data_type: got .*8-bit floats are for the KV cache"),
        ({"o_dtype": "float8_e5m2"}, "o_data_type"),
        ({"kv_dtype": torch.int8}, "kv_data_type: got torch.int8"),
        ({"pos_encoding_mode": "rope"}, "pos_encoding_mode: got 'rope'"),
        ({"pos_encoding_mode": 1}, "pos_encoding_mode: got 1"),
        ({"pos_encoding_mode": "ROPE_LLAMA", "head_dim_qk": 63}, "head_dim_qk: got 63, expected an even"),
        ({"sm_scale": math.nan}, "sm_scale: got nan"),
        ({"sm_scale": "1"}, "sm_scale: got '1', expected a number"),
        ({"sm_scale": [1.0]}, "sm_scale"),
        ({"sm_scale": torch.ones(8)}, "sm_scale: got a tensor of shape .8."),
        ({"logits_soft_cap": -1.0}, "logits_soft_cap: got -1.0"),
        ({"logits_soft_cap": math.inf}, "logits_soft_cap: got inf"),
        ({"logits_soft_cap": 1e39}, "logits_soft_cap: got 1e.39"),  # infinite in fp32
        ({"logits_soft_cap": 1e-46}, "logits_soft_cap: got 1e-46"),  # 0 in fp32, which would mean none
        ({"sm_scale": -1e39}, "sm_scale: got -1e.39, expected a finite number that fp32 holds"),
        ({"rope_scale": 0.0}, "rope_scale: got 0.0"),
        ({"rope_theta": -1e4}, "rope_theta"),
        ({"window_left": 1.5}, "window_left: got 1.5"),
        ({"window_left": None}, "window_left: got None"),
        ({"fixed_split_size": 0}, "fixed_split_size: got 0"),
        ({"fixed_split_size": 2**31}, "fixed_split_size: got 2147483648, expected at most"),
        ({"page_size": 2**31}, "page_size: got 2147483648, expected at most 2147483647"),
        ({"num_qo_heads": 2**64}, "num_qo_heads: got 18446744073709551616, expected at most"),
        ({"sm_scale": 10**400}, "sm_scale: got 1000"),
    ],
)
def test_a_malformed_argument_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build(**given)


def test_forward_flags_replace_the_planned_ones() -> None:
    planned = build(causal=True, window_left=7, logits_soft_cap=30.0, sm_scale=0.5)
    flags = {
        "pos_encoding_mode": "NONE",
        "window_left": -1,
        "logits_soft_cap": None,
        "sm_scale": None,
        "rope_scale": None,
        "rope_theta": None,
    }
    assert _request.overridden(planned, causal=False, **flags) == build()
    assert _request.overridden(planned, causal=None, **flags).mask is MaskKind.CAUSAL
    custom = build(custom_mask=True)
    assert _request.overridden(custom, causal=True, **flags).mask is MaskKind.CUSTOM


def test_requests_that_differ_in_lengths_alone_are_made_of_what_is_remembered() -> None:
    made: list[tuple[int, int]] = []

    def ask(given: tuple[object, ...], lengths: tuple[int, int]) -> Request:
        def make() -> Request:
            made.append(lengths)
            return build(causal=bool(given[0]), max_qo_len=lengths[0], max_kv_len=lengths[1])

        found = _request.remembered(("test", *given), lengths, make)
        assert found == build(causal=bool(given[0]), max_qo_len=lengths[0], max_kv_len=lengths[1])
        return found

    assert ask((True,), (1, 5)) is ask((True,), (1, 5))
    ask((True,), (1, 6))
    ask((True,), (7, 6))
    assert made == [(1, 5)]
    for given in ((1,), (1.0,), (False,)):  # equal or not: of another type, or another value
        ask(given, (1, 5))
    assert len(made) == 4


@pytest.mark.parametrize("given", [torch.tensor(1.0), [1], object()])
def test_arguments_that_may_change_are_read_each_time(given: object) -> None:
    made = [_request.remembered(("test", given), (1, 1), build) for _ in range(2)]
    assert made[0] is not made[1]

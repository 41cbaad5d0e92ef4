"""One function says whether AITER's library must have a mask; an unmasked one would ignore the window."""

from __future__ import annotations

import pytest
import torch

from arch_caps import DType, MaskKind, Op, Request
from rocade.backends.aiter._mask_need import mask_of
from rocade.conformance.oracle import Rules, attend

KEYS, QUERIES = 160, 96
WINDOWS = (0, 31, 127)


def request(op: Op = Op.SINGLE_PREFILL, **facts: object) -> Request:
    """96 queries of 160 keys in bf16, changed by `facts`."""
    plain = {
        "q_dtype": DType.BF16,
        "kv_dtype": DType.BF16,
        "o_dtype": DType.BF16,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "head_dim_qk": 64,
        "head_dim_vo": 64,
        "max_qo_len": QUERIES,
        "max_kv_len": KEYS,
    }
    return Request(op=op, **{**plain, **facts})


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("causal", [False, True])
def test_references_with_and_without_a_window_are_far_apart(window: int, causal: bool) -> None:
    """What every other test of windows here rests on: a library that ignored one could not pass unnoticed."""
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(n, 2, 64, generator=generator) for n in (QUERIES, KEYS, KEYS))
    with_window = attend(q, k, v, Rules(0.125, causal=causal, window_left=window)).out
    without = attend(q, k, v, Rules(0.125, causal=causal)).out
    assert (with_window - without).abs().max() > 0.1


@pytest.mark.parametrize("mask", [MaskKind.NONE, MaskKind.CAUSAL])
@pytest.mark.parametrize("window", [-1, *WINDOWS, KEYS - 1, KEYS, KEYS + 1, 2**31 - 1])
@pytest.mark.parametrize("op", [Op.SINGLE_PREFILL, Op.BATCH_PREFILL_RAGGED, Op.BATCH_PREFILL_PAGED])
def test_a_mask_is_needed_by_causal_or_a_window(op: Op, window: int, mask: MaskKind) -> None:
    found = mask_of(request(op, mask=mask, window_left=window))
    causal = mask is MaskKind.CAUSAL
    limits = 0 <= window < KEYS if op is Op.SINGLE_PREFILL else window >= 0
    assert found.needed is (causal or limits)
    assert found.left == (window if limits else -1)
    assert found.causal is causal


@pytest.mark.parametrize(
    "op", [Op.SINGLE_PREFILL, Op.SINGLE_DECODE, Op.BATCH_DECODE, Op.BATCH_PREFILL_RAGGED]
)
def test_one_query_is_not_causal_but_keeps_its_window(op: Op) -> None:
    asked = request(op, mask=MaskKind.CAUSAL, max_qo_len=1)
    assert mask_of(asked).needed is False
    windowed = mask_of(request(op, mask=MaskKind.CAUSAL, max_qo_len=1, window_left=31))
    assert (windowed.needed, windowed.left, windowed.causal) == (True, 31, False)


def test_an_unknown_number_of_queries_or_keys_keeps_the_mask() -> None:
    assert mask_of(request(mask=MaskKind.CAUSAL, max_qo_len=None)).causal
    assert mask_of(request(window_left=KEYS, max_kv_len=None)).left == KEYS

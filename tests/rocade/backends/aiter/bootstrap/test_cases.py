"""The check's problems can tell right from wrong: answers differ by mask, and agree with PyTorch's."""

from __future__ import annotations

import itertools

import pytest
import torch

from rocade.backends.aiter.bootstrap import _cases
from rocade.backends.aiter.bootstrap._cases import LENGTHS, Mask
from rocade_kernels.aiter.names import Family, VariantKey

MASKS = (Mask(False, -1), Mask(True, -1), Mask(True, _cases.WINDOW), Mask(False, _cases.WINDOW))


def key(*, dtype: str = "bf16", mask: bool = True, cap: bool = False) -> VariantKey:
    return VariantKey(
        family=Family.MHA_VARLEN_FWD, dtype=dtype, needs_mask=mask, has_lse=True, has_logits_cap=cap
    )


@pytest.mark.parametrize("cap", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_no_two_masks_have_answers_that_pass_for_each_other(dtype: str, cap: bool) -> None:
    given = _cases.rows(key(dtype=dtype, cap=cap), 64, LENGTHS)
    answers = [_cases.answer(given, mask, dtype) for mask in MASKS]
    for one, other in itertools.permutations(answers, 2):
        assert (one.out - other.out).abs().max() > 0.1
        assert "elements of the output are off" in _cases.verdict(one.out, None, other)
        assert "the LSE is off" in _cases.verdict(one.out, one.lse.float(), other)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_soft_cap_that_is_left_out_is_seen(dtype: str) -> None:
    capped, plain = (_cases.rows(key(dtype=dtype, cap=cap), 64, LENGTHS) for cap in (True, False))
    for mask in MASKS:
        right, wrong = (_cases.answer(given, mask, dtype) for given in (capped, plain))
        assert "elements of the output are off" in _cases.verdict(wrong.out, None, right)


def test_a_logarithm_of_base_2_is_seen() -> None:
    right = _cases.answer(_cases.rows(key(), 64, LENGTHS), MASKS[0], "bf16")
    lse = (right.lse / torch.log(torch.tensor(2.0))).float()
    assert _cases.verdict(right.out, lse, right).startswith("the LSE is off by up to")


def test_one_element_that_is_not_a_number_is_seen() -> None:
    right = _cases.answer(_cases.rows(key(), 64, LENGTHS), MASKS[0], "bf16")
    out, lse = right.out.clone(), right.lse.clone()
    out[3, 1, 7] = torch.nan
    assert _cases.verdict(out, lse, right).startswith("1 of ")
    lse[0, 0] = torch.nan
    assert _cases.verdict(right.out, lse, right) == "the LSE is off by up to inf"


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_rounding_passes(mask: Mask, dtype: str) -> None:
    """What a kernel that computes in fp32 with 16-bit weights stores, also rounding towards zero."""
    given = _cases.rows(key(dtype=dtype), 128, LENGTHS)
    right = _cases.answer(given, mask, dtype)
    rounded = right.out.to(_cases.DTYPES[dtype])
    assert _cases.verdict(rounded, right.lse.float(), right) == ""
    cut = right.out * (1 - 2 * _cases.UNIT[dtype])
    assert _cases.verdict(cut, right.lse.float(), right) == ""


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_answers_are_those_of_torch(mask: Mask) -> None:
    """The definition once more, by the fused function of PyTorch in fp64."""
    given = _cases.rows(key(), 64, LENGTHS[-1:])
    ((queries, keys),) = given.lengths
    q, k, v = (x.double().transpose(0, 1) for x in (given.q, given.k, given.v))
    distance = torch.arange(keys)[None] - (torch.arange(queries)[:, None] + keys - queries)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if mask.causal:
        seen &= distance <= 0
    if mask.window_left >= 0:
        seen &= distance >= -mask.window_left
    k, v = (x.repeat_interleave(2, 0) for x in (k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=given.scale)
    torch.testing.assert_close(_cases.answer(given, mask, "bf16").out, out.transpose(0, 1))


def test_a_library_without_mask_is_tried_without() -> None:
    assert _cases.masks(key(mask=False)) == (Mask(False, -1),)
    assert {(m.causal, m.window_left >= 0) for m in _cases.masks(key())} == {
        (True, False),
        (True, True),
        (False, True),
    }

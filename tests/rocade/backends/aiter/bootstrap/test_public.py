"""From the public API down to a library that AITER builds on the way: used if right, else passed over.

CPU tensors stand for a GPU's, and the compiler for AITER's; all between is real.
"""

from __future__ import annotations

import pytest
import torch
from tests.kernels.aiter import stub
from tests.rocade.backends.aiter import public_calls
from tests.rocade.backends.aiter.bootstrap.site import VERSION, Site
from tests.rocade.backends.aiter.model import on_gpu
from tests.rocade.backends.aiter.public_calls import Flags, Made

import rocade
from rocade import ArchCapabilityError
from rocade.backends.aiter import bootstrap
from rocade.backends.aiter.bootstrap import BootstrapError, Outcome, _variants

FLAGS = Flags(dtype="fp16", causal=True, window=-1, capped=False, lse=True)
WINDOW = FLAGS._replace(causal=False, window=31)


@pytest.fixture
def gpu(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """This machine has a gfx942, to which no recorded defect applies."""
    on_gpu(monkeypatch, "gfx942", VERSION)
    monkeypatch.setenv("ROCADE_ALLOW_KNOWN_BAD", "all")
    return site


def check(made: Made) -> None:
    """A call's results are right."""
    torch.testing.assert_close(made.out.double(), made.expected_out, atol=2e-3, rtol=2e-3)
    assert made.lse is not None
    torch.testing.assert_close(made.lse.double(), made.expected_lse, atol=1e-4, rtol=1e-5)


def names(site: Site) -> list[str]:
    """What was compiled."""
    return [str(found["name"]) for found in site.finished()]


def test_the_first_call_has_its_library_built_and_the_next_ones_use_it(gpu: Site) -> None:
    check(public_calls.single_prefill(WINDOW))
    check(public_calls.single_prefill(FLAGS))
    assert names(gpu) == ["mha_fwd_fp16_nbias_mask_lse_ndropout_nqscale"]
    check(public_calls.ragged(FLAGS))
    check(public_calls.ragged(WINDOW))
    assert names(gpu)[1:] == ["mha_varlen_fwd_fp16_nlogits_nbias_mask_lse_ndropout_nskip_nqscale"]


def test_pages_are_read_in_place_where_the_library_has_a_kernel_for_them(gpu: Site) -> None:
    for _ in range(2):
        check(public_calls.paged_prefill(FLAGS, 1024, in_place=True))
    assert names(gpu) == ["mha_batch_prefill_fp16_nlogits_nbias_mask_lse_ndropout_nqscale_nsink"]


def test_pages_without_a_kernel_are_gathered_each_time(gpu: Site) -> None:
    gpu.behave(stub.compiled(VERSION, ("COMPUTE", "PAGE_SIZES={1,16}")))
    for _ in range(2):
        check(public_calls.paged_prefill(FLAGS, 1024, in_place=False))
    assert [name.partition("_fp16")[0] for name in names(gpu)] == ["mha_batch_prefill", "mha_varlen_fwd"]


def test_a_wrong_kernel_for_pages_is_not_used_and_neither_is_a_wrong_one_for_rows(gpu: Site) -> None:
    gpu.behave(stub.compiled(VERSION, ("COMPUTE", "IGNORE_WINDOW")))
    for _ in range(2):
        with pytest.raises((BootstrapError, ArchCapabilityError), match="elements of the output are off"):
            public_calls.paged_prefill(FLAGS, 1024, in_place=True)
    assert {defect.library.partition("_fp16")[0] for defect in bootstrap.defects()} == {
        "mha_batch_prefill",
        "mha_varlen_fwd",
    }


def test_a_wrong_library_is_told_by_explain_and_by_the_error_of_the_next_call(gpu: Site) -> None:
    gpu.behave(stub.compiled(VERSION, ("COMPUTE", "IGNORE_WINDOW")))
    with pytest.raises((BootstrapError, ArchCapabilityError), match="elements of the output are off"):
        public_calls.single_prefill(FLAGS)
    assert [defect.outcome for defect in bootstrap.defects()] == [Outcome.WRONG]
    _variants.forget()  # as in another process
    facts = {"num_qo_heads": 4, "num_kv_heads": 2, "head_dim": public_calls.DIM, "causal": True}
    told = str(rocade.explain("single_prefill", backend="aiter", **facts))
    assert "window 31: " in told
    assert "elements of the output are off" in told
    with pytest.raises(ArchCapabilityError, match="elements of the output are off"):
        public_calls.single_prefill(FLAGS)
    assert len(names(gpu)) == 1


def test_auto_passes_over_a_library_that_cannot_be_built(gpu: Site) -> None:
    gpu.behave(stub.compiled(VERSION), exit=1)
    q = torch.randn(5, 4, 16, dtype=torch.float16, generator=torch.Generator().manual_seed(1))
    k = torch.randn(9, 2, 16, dtype=torch.float16, generator=torch.Generator().manual_seed(2))
    for _ in range(2):
        out = rocade.single_prefill_with_kv_cache(q, k, k, causal=True, backend="auto")
        assert out.isfinite().all()
    assert len(gpu.started()) == 1
    with pytest.raises(ArchCapabilityError, match="no such instruction"):
        rocade.single_prefill_with_kv_cache(q, k, k, causal=True, backend="aiter")


def test_strict_raises_where_auto_would_pass_over_it(gpu: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHINFER_AITER_STRICT", "1")
    gpu.behave(stub.compiled(VERSION), exit=1)
    q = torch.randn(5, 4, 16, dtype=torch.float16)
    for _ in range(2):
        with pytest.raises((BootstrapError, ArchCapabilityError), match="no such instruction"):
            rocade.single_prefill_with_kv_cache(q, q[:, :2], q[:, :2], causal=True, backend="auto")

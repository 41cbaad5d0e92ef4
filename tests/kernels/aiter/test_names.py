"""Names of AITER's libraries, as its own generators spell them."""

from __future__ import annotations

import pytest

from rocade_kernels.aiter.errors import AiterError, UnknownVersionError
from rocade_kernels.aiter.names import Family, VariantKey, entry, file_name

FWD, VARLEN, PREFILL = Family.MHA_FWD, Family.MHA_VARLEN_FWD, Family.MHA_BATCH_PREFILL


@pytest.mark.parametrize(
    ("family", "traits", "version", "name"),
    [
        (FWD, "fp16 mask lse", "0.1.7", "mha_fwd_fp16_nbias_mask_lse_ndropout.so"),
        (FWD, "bf16", "0.1.10", "mha_fwd_bf16_nbias_nmask_nlse_ndropout_nqscale.so"),
        (FWD, "bf16 lse", "0.1.20", "mha_fwd_bf16_nbias_nmask_lse_ndropout_nqscale.so"),
        (VARLEN, "bf16 cap", "0.1.7", "mha_varlen_fwd_bf16_logits_nbias_nmask_nlse_ndropout_nskip.so"),
        # These two are in the wheels of 0.1.10 to 0.1.14.
        (
            VARLEN,
            "bf16 mask",
            "0.1.10",
            "mha_varlen_fwd_bf16_nlogits_nbias_mask_nlse_ndropout_nskip_nqscale.so",
        ),
        (
            VARLEN,
            "bf16 lse",
            "0.1.14",
            "mha_varlen_fwd_bf16_nlogits_nbias_nmask_lse_ndropout_nskip_nqscale.so",
        ),
        (PREFILL, "fp16 mask", "0.1.7", "mha_batch_prefill_fp16_nlogits_nbias_mask_nlse_ndropout.so"),
        (PREFILL, "bf16 cap", "0.1.10", "mha_batch_prefill_bf16_logits_nbias_nmask_nlse_ndropout_nqscale.so"),
        (PREFILL, "bf16 lse", "0.1.13", "mha_batch_prefill_bf16_nlogits_nbias_nmask_lse_ndropout_nqscale.so"),
        (
            PREFILL,
            "bf16 mask lse cap",
            "0.1.14",
            "mha_batch_prefill_bf16_logits_nbias_mask_lse_ndropout_nqscale_nsink.so",
        ),
        (Family.FMHA_V3_FWD, "bf16 mask lse", "0.1.20", "module_fmha_v3_fwd.so"),
        (Family.FMHA_V3_VARLEN_FWD, "bf16", "0.1.7", "module_fmha_v3_varlen_fwd.so"),
    ],
)
def test_file_names(family: Family, traits: str, version: str, name: str) -> None:
    dtype, *rest = traits.split()
    key = VariantKey(
        family=family,
        dtype=dtype,
        needs_mask="mask" in rest,
        has_lse="lse" in rest,
        has_logits_cap="cap" in rest,
    )
    assert file_name(key, version) == name


def plain(family: Family, dtype: str = "bf16", *, cap: bool = False) -> VariantKey:
    return VariantKey(family=family, dtype=dtype, needs_mask=True, has_lse=True, has_logits_cap=cap)


def test_what_no_library_is_for() -> None:
    with pytest.raises(ValueError, match="mha_fwd has no soft cap"):
        plain(FWD, cap=True)
    with pytest.raises(ValueError, match="fmha_v3_fwd has no soft cap"):
        plain(Family.FMHA_V3_FWD, cap=True)
    with pytest.raises(ValueError, match="fmha_v3_varlen_fwd is for bf16, not fp16"):
        plain(Family.FMHA_V3_VARLEN_FWD, "fp16")
    with pytest.raises(ValueError, match="dtype is 'fp32', expected one of fp16, bf16"):
        plain(FWD, "fp32")


def test_an_unknown_version_has_no_names() -> None:
    with pytest.raises(UnknownVersionError):
        file_name(plain(FWD), "0.1.9")
    with pytest.raises(UnknownVersionError):
        entry(plain(FWD), "0.1.21")


def test_batch_prefill_changed_unseen_between_two_known_versions() -> None:
    with pytest.raises(AiterError, match=r"mha_batch_prefill in AITER 0\.1\.10\.post2 is not established"):
        entry(plain(PREFILL), "0.1.10.post2")
    assert entry(plain(FWD), "0.1.10.post2") == entry(plain(VARLEN), "0.1.20")
    assert entry(plain(FWD), "0.1.10").layout != entry(plain(FWD), "0.1.20").layout

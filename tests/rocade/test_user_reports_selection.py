"""Public bug reports as small tests: which backend is chosen, what the table knows, what is said of it."""

from __future__ import annotations

import logging

import pytest
from tests.rocade.paged import rand, workspace

import arch_caps
import rocade
from arch_caps import DType, MaskKind, Op, PosEncoding, Request, Toolchain
from rocade import _dispatch


def request(op: Op, **facts: object) -> Request:
    """bf16 with 32/8 heads of 128, changed by `facts`."""
    plain = {
        "q_dtype": DType.BF16,
        "kv_dtype": DType.BF16,
        "o_dtype": DType.BF16,
        "num_qo_heads": 32,
        "num_kv_heads": 8,
        "head_dim_qk": 128,
        "head_dim_vo": 128,
    }
    return Request(op=op, **{**plain, **facts})


def texts(asked: Request, target: str, **versions: str) -> str:
    found = arch_caps.reasons(asked, backend="aiter_ck", target=target, toolchain=Toolchain(**versions))
    return "; ".join(reason.text for reason in found)


@pytest.mark.parametrize("name", ["fa9", "", "AITER", "trt"])
def test_an_unknown_backend_is_an_error_in_every_wrapper(name: str) -> None:
    """AMD-Ecosystem/flashinfer#278: an unknown `backend=` silently became fa2."""
    for wrapper in (
        rocade.BatchPrefillWithPagedKVCacheWrapper,
        rocade.BatchPrefillWithRaggedKVCacheWrapper,
        rocade.BatchDecodeWithPagedKVCacheWrapper,
    ):
        with pytest.raises(ValueError, match="backend"):
            wrapper(workspace(), backend=name)
    with pytest.raises(ValueError, match="backend"):
        rocade.single_prefill_with_kv_cache(rand(1, 1, 8), rand(1, 1, 8), rand(1, 1, 8), backend=name)


def test_the_table_knows_the_rocm_72_causal_prefill_defect() -> None:
    """gfx950, ROCm 7.2, AITER causal batch prefill without soft cap: 97.6 % of the elements were off."""
    asked = request(Op.BATCH_PREFILL_PAGED, page_size=128, mask=MaskKind.CAUSAL)
    assert "aiter-causal-prefill-rocm72-gfx950" in texts(asked, "gfx950", rocm="7.2.1", aiter="0.1.12")
    assert "aiter-causal-prefill-rocm72-gfx950" not in texts(asked, "gfx950", rocm="7.1.0", aiter="0.1.12")
    assert "aiter-causal-prefill-rocm72-gfx950" not in texts(asked, "gfx942", rocm="7.2.1", aiter="0.1.12")


def test_the_table_knows_the_soft_cap_defect() -> None:
    """AMD-Ecosystem/flashinfer#294: mha_varlen_fwd applied the soft cap wrongly."""
    asked = request(Op.BATCH_PREFILL_RAGGED, mask=MaskKind.CAUSAL, logits_soft_cap=30.0, max_kv_len=1024)
    assert "aiter-softcap-causal-hd128-gfx950" in texts(asked, "gfx950", rocm="7.1.0")


def test_aiter_refuses_alibi_instead_of_ignoring_it() -> None:
    """amd-flashinfer's README: the AITER path silently ignored alibi."""
    asked = request(Op.BATCH_PREFILL_PAGED, page_size=128, pos_encoding=PosEncoding.ALIBI)
    assert "pos_encoding is ALIBI" in texts(asked, "gfx942")


@pytest.mark.parametrize("target", ["gfx1030", "gfx9999", "sm_75", "xpu", "", "cpu-riscv"])
def test_an_unknown_device_is_refused_with_a_reason_and_never_raises(target: str) -> None:
    """vllm#30952, aiter#1552, #4535: an unknown architecture raised when the package was imported."""
    name = arch_caps.target_of(target)
    for backend in arch_caps.preference(name):
        found = arch_caps.reasons(request(Op.BATCH_DECODE, page_size=16), backend=backend, target=name)
        assert all(reason.text for reason in found)
        assert found or backend == "torch"


def test_a_choice_is_explained_with_every_reason() -> None:
    """vllm#46596, #56945: the documentation said one backend, the code took another, nothing told why."""
    said = rocade.explain(
        "batch_decode", num_qo_heads=8, num_kv_heads=2, head_dim_qk=64, pos_encoding_mode="ROPE_LLAMA"
    )
    by_name = {verdict.backend: verdict.reasons for verdict in said.verdicts}
    assert said.backend == "torch"
    assert by_name["torch"] == ()
    assert any("pos_encoding" in reason.text for reason in by_name["cpu"])
    assert "pos_encoding" in str(said)


def test_a_choice_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """vllm#12395, #23772: a heuristic switched a feature off without a word."""
    _dispatch._logged.clear()
    q, k = rand(1, 2, 8), rand(3, 1, 8)
    with caplog.at_level(logging.INFO, logger="rocade"):
        for _ in range(3):
            rocade.single_prefill_with_kv_cache(q, k, k, pos_encoding_mode="ROPE_LLAMA")
    lines = [r.getMessage() for r in caplog.records if r.name == "rocade"]
    assert len(lines) == 1
    assert "single_prefill" in lines[0]
    assert "pos_encoding" in lines[0]

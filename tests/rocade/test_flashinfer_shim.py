"""`import flashinfer` served by rocade: imports of serving engines, real calls, refusals, uninstalling."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

import rocade
import rocade.flashinfer as shim

ENGINE_IMPORTS = {
    "vLLM": """
        from flashinfer import (
            BatchDecodeWithPagedKVCacheWrapper,
            BatchPrefillWithPagedKVCacheWrapper,
            BatchPrefillWithRaggedKVCacheWrapper,
            MultiLevelCascadeAttentionWrapper,
        )
        from flashinfer.decode import _get_range_buf, trtllm_batch_decode_with_kv_cache
        from flashinfer.prefill import trtllm_batch_context_with_kv_cache
        from flashinfer.utils import FP4Tensor
        from flashinfer.fused_moe import cutlass_fused_moe, trtllm_fp8_block_scale_moe
        from flashinfer import fp4_quantize, nvfp4_block_scale_interleave
        from flashinfer.autotuner import autotune
        from flashinfer.sampling import top_k_top_p_sampling_from_logits
        import flashinfer.comm as flashinfer_comm
    """,
    "SGLang": """
        from flashinfer import (
            BatchDecodeWithPagedKVCacheWrapper,
            BatchPrefillWithPagedKVCacheWrapper,
            BatchPrefillWithRaggedKVCacheWrapper,
            fast_decode_plan,
        )
        from flashinfer.cascade import merge_state
        from flashinfer import BatchMLAPagedAttentionWrapper
        from flashinfer.norm import rmsnorm, fused_add_rmsnorm
        from flashinfer.fused_moe import RoutingMethodType
        from flashinfer.fused_moe.core import ActivationType
    """,
    "TensorRT-LLM": """
        import flashinfer
        from flashinfer.jit import gen_jit_spec
        flashinfer.page.append_paged_kv_cache
        flashinfer.get_batch_indices_positions
        flashinfer.get_seq_lens
        flashinfer.BatchPrefillWithPagedKVCacheWrapper
    """,
    "TGI and LoRAX": """
        import flashinfer
        flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper
        flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper
        flashinfer.BatchPrefillWithRaggedKVCacheWrapper
    """,
}


# FlashInfer's parameters in order, with the defaults it has; rocade's extra ones come after, by keyword.
CACHE_LEVELS = "qo_indptr_arr paged_kv_indptr_arr paged_kv_indices_arr paged_kv_last_page_len"
SIZES = "num_qo_heads num_kv_heads head_dim page_size"
SIGNATURES = {
    "merge_state": "v_a s_a v_b s_b",
    "merge_state_in_place": "v s v_other s_other mask=None",
    "merge_states": "v s",
    "packbits": "x bitorder='big'",
    "segment_packbits": "x indptr bitorder='big'",
    "get_seq_lens": "kv_indptr kv_last_page_len page_size",
    "get_batch_indices_positions": "append_indptr seq_lens nnz batch_indices=None positions=None",
    "append_paged_kv_cache": "append_key append_value batch_indices positions paged_kv_cache kv_indices "
    "kv_indptr kv_last_page_len kv_layout='NHD'",
    "MultiLevelCascadeAttentionWrapper": "num_levels float_workspace_buffer kv_layout='NHD' "
    "use_cuda_graph=False qo_indptr_buf_arr=None paged_kv_indptr_buf_arr=None paged_kv_indices_buf_arr=None "
    "paged_kv_last_page_len_buf_arr=None",
    "MultiLevelCascadeAttentionWrapper.plan": f"self {CACHE_LEVELS} {SIZES} causal=False "
    "pos_encoding_mode='NONE' use_fp16_qk_reduction=False sm_scale=None window_left=-1 logits_soft_cap=None "
    "rope_scale=None rope_theta=None q_data_type='float16' kv_data_type=None",
    "MultiLevelCascadeAttentionWrapper.run": "self q paged_kv_cache",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper": "float_workspace_buffer kv_layout='NHD'",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper.plan": "self unique_kv_indptr unique_kv_indices "
    # FlashInfer's default is 'float16'; None takes the tensors' own, so that bf16 works without naming it.
    f"unique_kv_last_page_len {SIZES} data_type=None",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper.forward": "self q k_shared v_shared unique_kv_cache",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper.plan": "self qo_indptr paged_kv_indptr paged_kv_indices "
    f"paged_kv_last_page_len {SIZES}",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper.forward": "self q k_shared v_shared unique_kv_cache "
    "causal=False use_fp16_qk_reduction=False sm_scale=None rope_scale=None rope_theta=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_flashinfers(name: str) -> None:
    call = functools.reduce(getattr, name.split("."), rocade)
    parameters = inspect.signature(call).parameters.values()
    positional = [str(p.replace(annotation=p.empty)) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert " ".join(positional) == SIGNATURES[name]
    extras = [p for p in parameters if p.kind is not p.POSITIONAL_OR_KEYWORD]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in extras)


@pytest.fixture
def flashinfer() -> Iterator[ModuleType]:
    shim.install()
    yield importlib.import_module("flashinfer")
    shim.uninstall()


@pytest.mark.parametrize("engine", ENGINE_IMPORTS)
@pytest.mark.usefixtures("flashinfer")
def test_imports_of_serving_engines(engine: str) -> None:
    lines = "\n".join(line.strip() for line in ENGINE_IMPORTS[engine].splitlines())
    exec(lines, {})


def test_names_are_rocades_own(flashinfer: ModuleType) -> None:
    from flashinfer.cascade import merge_state

    assert merge_state is rocade.merge_state
    assert flashinfer.BatchDecodeWithPagedKVCacheWrapper is rocade.BatchDecodeWithPagedKVCacheWrapper
    assert flashinfer.quantization.packbits is rocade.packbits
    assert set(rocade.__all__) <= set(dir(flashinfer))
    assert flashinfer.__version__.startswith("0.6.")


def test_a_program_runs_unchanged(flashinfer: ModuleType) -> None:
    workspace = torch.empty(1 << 20, dtype=torch.uint8)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    wrapper.begin_forward = functools.partial(flashinfer.decode.fast_decode_plan, wrapper)
    indptr = flashinfer.decode._get_range_buf(4, torch.device("cpu"))
    indices, last = torch.tensor([2, 0, 1], dtype=torch.int32), torch.ones(3, dtype=torch.int32)
    wrapper.plan(indptr, indices, last, 4, 2, 16, 1, q_data_type=torch.float32)
    cache = torch.randn(3, 2, 1, 2, 16)
    out, lse = wrapper.run(torch.randn(3, 4, 16), cache, return_lse=True)
    assert torch.equal(out, cache[indices, 1, 0].repeat_interleave(2, 1))
    merged, _ = flashinfer.cascade.merge_state(out, lse, out, lse)
    torch.testing.assert_close(merged, out)


def test_what_rocade_lacks_is_refused_when_called(flashinfer: ModuleType) -> None:
    with pytest.raises(NotImplementedError, match=r"^rocade has no top_k_mask_logits: .*torch.topk"):
        flashinfer.sampling.top_k_mask_logits(torch.ones(1, 4), 2)
    with pytest.raises(NotImplementedError, match="trtllm_batch_decode_with_kv_cache"):
        flashinfer.decode.trtllm_batch_decode_with_kv_cache()
    with pytest.raises(AttributeError, match=r"'flashinfer\.decode' has no attribute 'no_such_name'"):
        _ = flashinfer.decode.no_such_name
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from flashinfer.prefill import no_such_name")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flashinfer.no_such_module")


def test_small_helpers(flashinfer: ModuleType) -> None:
    utils = importlib.import_module("flashinfer.utils")
    assert [utils.next_positive_power_of_2(n) for n in (0, 1, 2, 3, 17)] == [1, 1, 2, 4, 32]
    assert utils.PosEncodingMode["ALIBI"].value == 2
    assert not utils.is_sm90a_supported(torch.device("cpu"))
    with pytest.raises(ValueError, match="device: got cpu"):
        utils.get_compute_capability(torch.device("cpu"))
    with flashinfer.autotune(True):
        pass


def test_the_import_system_finds_every_module(flashinfer: ModuleType) -> None:
    for name in [n for n in sys.modules if n.startswith("flashinfer")]:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.name == name
        assert importlib.import_module(name).__name__ == name
    assert (
        importlib.util.find_spec("flashinfer.bench") is None
    )  # rocade's modules do not leak in as FlashInfer's
    assert callable(flashinfer.xqa)


def test_installing_twice_and_uninstalling() -> None:
    shim.install()
    first = sys.modules["flashinfer"]
    shim.install()
    assert sys.modules["flashinfer"] is first
    assert shim.is_installed()
    shim.uninstall()
    assert not shim.is_installed()
    assert not [name for name in sys.modules if name.startswith("flashinfer")]
    shim.uninstall()
    assert first.merge_state is rocade.merge_state


def test_a_real_flashinfer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModuleType("flashinfer")
    monkeypatch.setitem(sys.modules, "flashinfer", real)
    with pytest.raises(RuntimeError, match="flashinfer is imported already"):
        shim.install()
    shim.uninstall()
    assert sys.modules["flashinfer"] is real
    assert not shim.is_installed()


def test_nothing_is_installed_by_importing_rocade() -> None:
    code = "import sys, rocade, rocade.flashinfer; assert 'flashinfer' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_shim_is_there_after_importing_rocade_alone() -> None:
    code = "import rocade; rocade.flashinfer.install(); import flashinfer.prefill; flashinfer.merge_state"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rocade_itself_answers_for_flashinfers_names() -> None:
    with pytest.raises(NotImplementedError, match="BatchMLAPagedAttentionWrapper"):
        rocade.BatchMLAPagedAttentionWrapper(None)
    with pytest.raises(NotImplementedError, match="rmsnorm"):
        rocade.norm.rmsnorm(None, None)
    for module in (rocade, rocade.decode, rocade.prefill, rocade.cascade, rocade.page, rocade.quantization):
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = module.no_such_name

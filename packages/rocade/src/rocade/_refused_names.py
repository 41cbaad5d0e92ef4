"""The names that FlashInfer exports and rocade does not have, grouped by feature. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """Some names, the FlashInfer modules that hold them, and two clauses for the refusal's sentence."""

    why: str
    instead: str
    modules: tuple[str, ...]
    names: str  # separated by spaces; a CapWords name is a class


_NOT_ATTENTION = "it covers attention, its KV cache and cascade, not"

FEATURES: tuple[Feature, ...] = (
    Feature(
        "multi-head latent attention is not implemented yet",
        "run attention on the uncompressed keys and values with a prefill or decode wrapper",
        ("mla", "decode", "page", "concat_ops"),
        """BatchMLAPagedAttentionWrapper BatchDecodeMlaWithPagedKVCacheWrapper append_paged_mla_kv_cache
        trtllm_batch_decode_with_kv_cache_mla xqa_batch_decode_with_kv_cache_mla xqa_mla concat_mla_k
        nvfp4_quantize_append_paged_mla_kv_cache""",
    ),
    Feature(
        "attention sinks are not implemented yet",
        "use a wrapper without sinks only for models that have none",
        ("attention", "decode", "prefill"),
        "BatchAttentionWithAttentionSinkWrapper",
    ),
    Feature(
        "one launch for prefill and decode together is not implemented yet",
        "use BatchPrefillWithPagedKVCacheWrapper, which takes requests of any query length in one plan",
        ("attention", "pod"),
        "BatchAttention PODWithPagedKVCacheWrapper BatchPODWithPagedKVCacheWrapper",
    ),
    Feature(
        "block-sparse attention is not implemented yet",
        "use BatchPrefillWithRaggedKVCacheWrapper with custom_mask",
        ("sparse", "msa_ops"),
        "BlockSparseAttentionWrapper VariableBlockSparseAttentionWrapper",
    ),
    Feature(
        "it wraps a kernel that exists for NVIDIA GPUs alone",
        "use BatchDecodeWithPagedKVCacheWrapper",
        ("decode", "xqa", "cudnn", "cudnn.decode", "cake_fmha"),
        """trtllm_batch_decode_with_kv_cache xqa_batch_decode_with_kv_cache cudnn_batch_decode_with_kv_cache
        TrtllmGenDecodeModule get_trtllm_gen_decode_module get_trtllm_gen_fmha_module sm110_gqa_decode xqa
        cake_batch_decode_with_kv_cache""",
    ),
    Feature(
        "it wraps a kernel that exists for NVIDIA GPUs alone",
        "use BatchPrefillWithPagedKVCacheWrapper or BatchPrefillWithRaggedKVCacheWrapper",
        ("prefill", "cudnn", "cudnn.prefill", "cake_fmha", "nvfp4_attention_sm120"),
        """trtllm_batch_context_with_kv_cache trtllm_ragged_attention_deepseek trtllm_fmha_v2_prefill
        trtllm_sage_attention_quantize cudnn_batch_prefill_with_kv_cache fmha_varlen
        fmha_v2_prefill_deepseek cake_batch_context_with_kv_cache nvfp4_attention_sm120_fwd
        nvfp4_attention_sm120_quantize_qkv""",
    ),
    Feature(
        "kernels are compiled ahead of time, so there is no kernel module to fetch",
        "use the wrappers, and rocade.explain(...) for the backend they choose",
        ("decode", "prefill", "cascade", "page", "jit", "quantization"),
        """get_single_decode_module get_batch_decode_module get_batch_decode_jit_module
        get_single_prefill_module get_batch_prefill_module get_batch_prefill_jit_module get_cascade_module
        get_page_module get_quantization_module get_fmha_module gen_quantization_module gen_jit_spec JitSpec
        build_jit_specs""",
    ),
    Feature(
        f"{_NOT_ATTENTION} sampling",
        "filter with torch.topk or torch.sort and draw with torch.multinomial",
        ("sampling", "topk"),
        """softmax sampling_from_logits sampling_from_probs top_p_sampling_from_probs
        top_k_sampling_from_probs min_p_sampling_from_probs top_k_top_p_sampling_from_logits
        top_k_top_p_sampling_from_probs top_p_renorm_probs top_p_renorm_prob top_k_renorm_probs
        top_k_renorm_prob top_k_mask_logits chain_speculative_sampling top_k top_k_page_table_transform
        top_k_ragged_transform top_k_varlen TopKTieBreak can_implement_filtered_topk""",
    ),
    Feature(
        f"{_NOT_ATTENTION} logits pipelines",
        "apply temperature, top-k and top-p with torch",
        ("logits_processor",),
        "LogitsPipe LogitsProcessor Temperature Softmax TopK TopP MinP Sample TaggedTensor TensorType",
    ),
    Feature(
        "rotary embedding as an operation of its own is not implemented yet",
        'rotate with torch, or plan with pos_encoding_mode="ROPE_LLAMA"',
        ("rope",),
        """apply_rope apply_rope_inplace apply_rope_pos_ids apply_rope_pos_ids_inplace apply_llama31_rope
        apply_llama31_rope_inplace apply_llama31_rope_pos_ids apply_llama31_rope_pos_ids_inplace
        apply_rope_with_cos_sin_cache apply_rope_with_cos_sin_cache_inplace mla_rope_quantize_fp8
        rope_quantize_fp8 rope_quantize_fp8_append_paged_kv_cache""",
    ),
    Feature(
        f"{_NOT_ATTENTION} normalisation",
        "use torch.nn.functional.rms_norm or layer_norm",
        ("norm",),
        """rmsnorm rmsnorm_quant fused_add_rmsnorm fused_add_rmsnorm_quant gemma_rmsnorm
        gemma_fused_add_rmsnorm layernorm layernorm_quant fused_rmsnorm_silu fused_qk_rmsnorm_rope
        rmsnorm_fp4quant add_rmsnorm_fp4quant fused_add_rmsnorm_fp8_block_quant
        fused_dit_residual_layernorm_scale_shift fused_dit_gate_residual_layernorm_scale_shift
        fused_dit_gate_residual_layernorm_gamma_beta""",
    ),
    Feature(
        f"{_NOT_ATTENTION} activations",
        "use torch.nn.functional.silu or gelu and a multiplication",
        ("activation", "gated_act_mxfp8"),
        """silu_and_mul gelu_and_mul gelu_tanh_and_mul silu_and_mul_scaled_nvfp4_experts_quantize
        silu_and_mul_mxfp8_quantize silu_and_mul_mxfp8_quantize_backward""",
    ),
    Feature(
        f"{_NOT_ATTENTION} matrix products",
        "use torch.matmul or torch._scaled_mm",
        ("gemm", "grouped_mm", "deep_gemm", "trtllm_low_latency_gemm", "gemm.kernels"),
        """SegmentGEMMWrapper bmm_bf16 bmm_fp8 bmm_mxfp8 mm_bf16 mm_bf16_fp4 mm_fp4 mm_fp8 mm_mxfp8
        mm_nvfp4_svdquant svdquant_linear nvfp4_quantize_smooth prepare_bf16_fp4_weights tgv_gemm_sm100
        group_gemm_mxfp4_nt_groupwise group_gemm_mxfp8_mxfp4_nt_groupwise group_gemm_nvfp4_nt_groupwise
        batch_deepgemm_fp8_nt_groupwise group_deepgemm_fp8_nt_groupwise gemm_fp8_nt_blockscaled
        gemm_fp8_nt_groupwise group_gemm_fp8_nt_groupwise fp8_blockscale_gemm_sm90 mm_M1_16_K6144_N256
        mm_M1_16_K7168_N128 mm_M1_16_K7168_N256 tinygemm_bf16 grouped_mm_bf16 grouped_mm_fp8
        grouped_mm_mxfp8 grouped_mm_fp4 grouped_gemm_nt_masked prepare_low_latency_gemm_weights""",
    ),
    Feature(
        f"{_NOT_ATTENTION} mixture-of-experts layers",
        "use the serving engine's own fused MoE",
        ("fused_moe", "fused_moe.core", "tllm_enums", "cute_dsl"),
        """cutlass_fused_moe reorder_rows_for_gated_act_gemm trtllm_bf16_moe trtllm_bf16_routed_moe
        trtllm_fp4_block_scale_moe trtllm_fp4_block_scale_routed_moe trtllm_fp8_block_scale_moe
        trtllm_fp8_block_scale_routed_moe trtllm_fp8_per_tensor_scale_moe
        trtllm_fp8_per_tensor_scale_routed_moe trtllm_mxint4_block_scale_moe convert_to_block_layout
        interleave_moe_scales_for_sm90_mixed_gemm interleave_moe_weights_for_sm90_mixed_gemm
        cute_dsl_fused_moe_nvfp4 CuteDslMoEWrapper b12x_fused_moe B12xMoEWrapper fused_topk_deepseek
        hash_topk MoELayer MoEConfig RoutingMethodType ActivationType GatedActType WeightLayout
        Fp8QuantizationType get_w2_permute_indices_with_cache _maybe_get_cached_w3_w1_permute_indices
        is_gated_activation aiter_fused_moe moe_fp8_dtype quantize_moe_weight shuffle_moe_weight""",
    ),
    Feature(
        "4-bit and block-scaled formats are not implemented",
        "use an fp8, fp16 or bf16 KV cache",
        (
            "quantization",
            "fp4_quantization",
            "fp8_quantization",
            "page",
            "utils",
            "quantization.fp4_quantization",
            "quantization.fp8_quantization",
        ),
        """fp4_quantize nvfp4_quantize nvfp4_batched_quantize nvfp4_quantize_paged_kv_cache
        nvfp4_kv_quantize nvfp4_kv_dequantize nvfp4_kv_dequantize_paged mxfp4_quantize mxfp4_dequantize
        mxfp4_dequantize_host mxfp8_quantize mxfp8_grouped_quantize mxfp8_dequantize_host
        per_token_group_quant_8bit block_scale_interleave nvfp4_block_scale_interleave
        e2m1_and_ufp8sf_scale_to_float shuffle_matrix_a shuffle_matrix_sf_a scaled_fp4_grouped_quantize
        silu_and_mul_nvfp4_quantize get_fp4_quantization_module SfLayout FP4Tensor
        nvfp4_quantize_append_paged_kv_cache nvfp4_quantize_append_paged_kv_cache_with_slot_mapping""",
    ),
    Feature(
        f"{_NOT_ATTENTION} communication between GPUs",
        "use torch.distributed",
        (
            "comm",
            "comm.mapping",
            "comm.mnnvl",
            "comm.trtllm_alltoall",
            "comm.trtllm_ar",
            "comm.vllm_ar",
            "comm.allreduce",
        ),
        """allreduce_fusion create_allreduce_fusion_workspace trtllm_allreduce_fusion
        trtllm_custom_all_reduce trtllm_create_ipc_workspace_for_all_reduce
        trtllm_create_ipc_workspace_for_all_reduce_fusion trtllm_destroy_ipc_workspace_for_all_reduce
        trtllm_destroy_ipc_workspace_for_all_reduce_fusion trtllm_lamport_initialize
        trtllm_lamport_initialize_all trtllm_moe_allreduce_fusion trtllm_moe_finalize_allreduce_fusion
        vllm_all_reduce vllm_dispose vllm_init_custom_ar vllm_meta_size vllm_register_buffer
        vllm_register_graph_buffers vllm_get_graph_buffer_ipc_meta all_gather_matmul create_shared_buffer
        free_shared_buffer pack_strided_memory moe_a2a_combine moe_a2a_dispatch moe_a2a_initialize
        moe_a2a_get_workspace_size_per_rank moe_a2a_sanitize_expert_ids
        moe_a2a_wrap_payload_tensor_in_workspace decode_cp_a2a_alltoall AllReduceFusionOp
        AllReduceFusionPattern AllReduceStrategyConfig AllReduceStrategyType AllReduceFusionWorkspace
        QuantizationSFLayout MNNVLAllReduceFusionWorkspace TRTLLMAllReduceFusionWorkspace CudaRTLibrary
        Mapping MoeAlltoAll MnnvlMemory MnnvlMoe MoEAlltoallInfo MnnvlConfig CommBackend
        UlyssesCommunicator""",
    ),
    Feature(
        f"{_NOT_ATTENTION} linear attention or state-space models",
        "use the model library's own kernels",
        ("gdn_prefill", "gdn_decode", "gdn_kernels", "kda", "kda_decode", "kda_prefill", "mamba", "mhc"),
        """chunk_gated_delta_rule chunk_gated_delta_rule2 chunk_gated_delta_product gdn_fused_decode_step
        gated_delta_rule_decode RecurrentKDAPrefillWrapper RecurrentKDAPrefillWorkspace recurrent_kda
        fused_kda_decode packed_kda_decode selective_state_update""",
    ),
    Feature(
        "attention scores alone are not an operation here",
        "run attention, or compute the logits with torch",
        ("attn_scores",),
        """compute_paged_mqa_logits_schedule fp4_paged_mqa_logits fp8_paged_mqa_logits min_block_table_width
        padded_seq_len precompile_paged_mqa_logits""",
    ),
    Feature(
        "there is nothing to tune or to trace at run time",
        "choose with backend=, and see rocade.explain(...) for what auto chooses",
        ("autotuner", "autotune_cache", "fi_trace", "green_ctx", "profiler", "testing"),
        """autotune autotune_v2 autotune_v2_reload AutoTuner TunableRunner TuningConfig MeasurementPolicy
        fi_trace split_device_green_ctx split_device_green_ctx_by_sm_count bench_gpu_time""",
    ),
)

# Modules of FlashInfer that rocade has a module of its own for; all other modules above are stand-ins.
OWN_MODULES = frozenset({"cascade", "decode", "page", "prefill", "quantization"})
MODULES = frozenset(m for f in FEATURES for m in f.modules) - OWN_MODULES

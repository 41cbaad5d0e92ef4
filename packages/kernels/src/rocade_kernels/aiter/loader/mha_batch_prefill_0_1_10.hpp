// aiter::mha_batch_prefill of AITER 0.1.10, and no other.
#pragma once

#include "foreign.hpp"

namespace rocade::aiter {

struct MhaBatchPrefill_0_1_10 {
  static constexpr const char* kName = "mha_batch_prefill 0.1.10";

  // Trivially copyable, so the caller puts a copy on the stack.
  struct Args {
    const void *q_ptr, *k_ptr, *v_ptr, *bias_ptr, *q_descale_ptr, *k_descale_ptr, *v_descale_ptr;
    void *rand_val_ptr, *lse_ptr, *o_ptr;
    const void *seqstart_q_ptr, *sink_ptr;
    int32_t seqlen_q, seqlen_k, batch, max_seqlen_q, hdim_q, hdim_v, nhead_q, nhead_k;
    int32_t num_total_pages, page_block_size, kv_memory_layout, kv_lookup_table;
    void *kv_indptr, *kv_page_indices, *kv_last_page_lens, *seqlen_k_ptr;
    int32_t batch_stride_block_table;
    float scale_s, scale_p, scale_o, logits_soft_cap;
    int32_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o;
    int32_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias, nhead_stride_randval;
    int32_t nhead_stride_lse, nhead_stride_o;
    int32_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias, batch_stride_randval;
    int32_t batch_stride_lse, batch_stride_o;
    int32_t window_size_left, window_size_right, sink_size, mask_type;
    float p_drop;
    bool s_randval;
    SeedAndOffset drop_seed_offset;
  };
  static_assert(sizeof(Args) == 328 && offsetof(Args, lse_ptr) == 64 && offsetof(Args, seqlen_q) == 96 &&
                offsetof(Args, num_total_pages) == 128 && offsetof(Args, kv_indptr) == 144 &&
                offsetof(Args, batch_stride_block_table) == 176 && offsetof(Args, scale_s) == 180 &&
                offsetof(Args, stride_q) == 196 && offsetof(Args, nhead_stride_q) == 220 &&
                offsetof(Args, batch_stride_q) == 248 && offsetof(Args, window_size_left) == 276 &&
                offsetof(Args, p_drop) == 292 && offsetof(Args, drop_seed_offset) == 304);

  using Function = float (*)(Args, const StreamConfig&, String*, bool is_group_mode, int32_t mask,
                             int32_t bias, bool has_lse, int32_t quant_scale, bool use_ext_asm);

  static float call(Function function, Args& args, const StreamConfig& stream, const rk_aiter_call& c) {
    String dtype;
    dtype.set(dtype_name(c));
    return function(args, stream, &dtype, true, args.mask_type, kNoBias, c.lse != 0, kNoQuantScale, false);
  }
};

} // namespace rocade::aiter

// aiter::mha_fwd of AITER 0.1.10.post1 to 0.1.20: as in 0.1.10, with fields for block scales in between.
#pragma once

#include "foreign.hpp"

namespace rocade::aiter {

struct MhaFwd_0_1_10_post1 {
  static constexpr const char* kName = "mha_fwd 0.1.10.post1";

  struct Args {
    bool use_asm_v3, v3_api_check;
    int32_t how_v3_bf16_cvt;
    String data_type;
    bool is_group_mode;
    int32_t bias_type;
    bool has_lse;
    int32_t qscale_type;
    bool has_sink;
    const void *q_ptr, *k_ptr, *v_ptr, *bias_ptr, *q_descale_ptr, *k_descale_ptr, *v_descale_ptr;
    void *rand_val_ptr, *lse_ptr, *o_ptr;
    const void *seqstart_q_ptr, *seqstart_k_ptr, *seqlen_q_ptr, *seqlen_k_ptr, *cu_seqlen_q_ptr,
        *cu_seqlen_k_ptr;
    const void *block_scale_seqstart_q_ptr, *block_scale_seqstart_k_ptr, *sink_ptr;
    int32_t seqlen_q, seqlen_k, batch, max_seqlen_q, hdim_q, hdim_v, nhead_q, nhead_k;
    float scale_s, logits_soft_cap;
    int32_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o;
    int32_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias, nhead_stride_randval;
    int32_t nhead_stride_lse, nhead_stride_o;
    int32_t nhead_stride_q_descale, nhead_stride_k_descale, nhead_stride_v_descale;
    int32_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias, batch_stride_randval;
    int32_t batch_stride_lse, batch_stride_o;
    int32_t batch_stride_q_descale, batch_stride_k_descale, batch_stride_v_descale;
    int32_t window_size_left, window_size_right, sink_size, mask_type, min_seqlen_q;
    float p_drop;
    bool s_randval;
    SeedAndOffset drop_seed_offset;
    int32_t block_scale_size_q, block_scale_size_kv;
  };
  static_assert(sizeof(Args) == 424 && offsetof(Args, data_type) == 8 &&
                offsetof(Args, is_group_mode) == 40 && offsetof(Args, has_sink) == 56 &&
                offsetof(Args, q_ptr) == 64 && offsetof(Args, o_ptr) == 136 &&
                offsetof(Args, sink_ptr) == 208 && offsetof(Args, seqlen_q) == 216 &&
                offsetof(Args, scale_s) == 248 && offsetof(Args, stride_q) == 256 &&
                offsetof(Args, nhead_stride_q) == 280 && offsetof(Args, batch_stride_q) == 320 &&
                offsetof(Args, window_size_left) == 360 && offsetof(Args, mask_type) == 372 &&
                offsetof(Args, p_drop) == 380 && offsetof(Args, drop_seed_offset) == 392 &&
                offsetof(Args, block_scale_size_q) == 416);

  using Function = float (*)(Args*, const StreamConfig&);

  static float call(Function function, Args& args, const StreamConfig& stream, const rk_aiter_call&) {
    return function(&args, stream);
  }
};

} // namespace rocade::aiter

// aiter::mha_fwd of AITER 0.1.7: Composable Kernel's fmha_fwd_args by value, and traits beside it.
#pragma once

#include "foreign.hpp"

namespace rocade::aiter {

struct MhaFwd_0_1_7 {
  static constexpr const char* kName = "mha_fwd 0.1.7";

  // Trivially copyable, so the caller puts a copy on the stack.
  struct Args {
    const void *q_ptr, *k_ptr, *v_ptr, *bias_ptr;
    void *rand_val_ptr, *lse_ptr, *o_ptr;
    const void *seqstart_q_ptr, *seqstart_k_ptr, *seqlen_q_ptr, *seqlen_k_ptr, *cu_seqlen_q_ptr,
        *cu_seqlen_k_ptr;
    int32_t seqlen_q, seqlen_k, batch, max_seqlen_q, hdim_q, hdim_v, nhead_q, nhead_k;
    float scale_s, scale_p, scale_o, logits_soft_cap;
    int32_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o;
    int32_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias, nhead_stride_randval;
    int32_t nhead_stride_lse, nhead_stride_o;
    int32_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias, batch_stride_randval;
    int32_t batch_stride_lse, batch_stride_o;
    int32_t window_size_left, window_size_right, mask_type, min_seqlen_q;
    float p_drop;
    bool s_randval;
    SeedAndOffset drop_seed_offset;
  };
  static_assert(sizeof(Args) == 280 && offsetof(Args, lse_ptr) == 40 &&
                offsetof(Args, seqstart_q_ptr) == 56 && offsetof(Args, seqlen_q) == 104 &&
                offsetof(Args, scale_s) == 136 && offsetof(Args, stride_q) == 152 &&
                offsetof(Args, nhead_stride_q) == 176 && offsetof(Args, batch_stride_q) == 204 &&
                offsetof(Args, window_size_left) == 232 && offsetof(Args, p_drop) == 248 &&
                offsetof(Args, drop_seed_offset) == 256);

  // A std::string goes by the address of the caller's object.
  using Function = float (*)(Args, const StreamConfig&, String*, bool is_group_mode, int32_t mask,
                             int32_t bias, bool has_lse, bool use_ext_asm, int32_t how_v3_bf16_cvt,
                             const void* seqstart_q_padding, const void* seqstart_k_padding,
                             bool is_v3_api_check);

  static float call(Function function, Args& args, const StreamConfig& stream, const rk_aiter_call& c) {
    String dtype;
    dtype.set(dtype_name(c));
    return function(args, stream, &dtype, c.is_ragged, args.mask_type, kNoBias, c.lse != 0, c.hand_written,
                    kRoundToEven, nullptr, nullptr, false);
  }
};

} // namespace rocade::aiter

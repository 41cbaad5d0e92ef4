// A call of ours into the argument struct of any layout: fields of one name mean the same in all of them.
#pragma once

#include "foreign.hpp"

namespace rocade::aiter {

// AITER's sizes and strides have 32 bits. Remembers the first number that does not fit.
class Narrow {
public:
  int32_t operator()(int64_t value, const char* name) {
    const auto narrow = static_cast<int32_t>(value);
    if (narrow != value && name_ == nullptr) {
      name_ = name;
      value_ = value;
    }
    return narrow;
  }
  const char* name() const { return name_; } // null when all fit
  int64_t value() const { return value_; }

private:
  const char* name_ = nullptr;
  int64_t value_ = 0;
};

inline void* pointer(int64_t address) { return reinterpret_cast<void*>(address); }

template <typename Args> void fill_tensors(Args& a, const rk_aiter_call& c, Narrow& narrow) {
  a.q_ptr = pointer(c.q);
  a.k_ptr = pointer(c.k);
  a.v_ptr = pointer(c.v);
  a.o_ptr = pointer(c.out);
  a.lse_ptr = pointer(c.lse);
  a.stride_q = narrow(c.token_stride_q, "token stride of q");
  a.stride_k = narrow(c.token_stride_k, "token stride of k");
  a.stride_v = narrow(c.token_stride_v, "token stride of v");
  a.stride_o = narrow(c.token_stride_out, "token stride of out");
  a.nhead_stride_q = narrow(c.head_stride_q, "head stride of q");
  a.nhead_stride_k = narrow(c.head_stride_k, "head stride of k");
  a.nhead_stride_v = narrow(c.head_stride_v, "head stride of v");
  a.nhead_stride_o = narrow(c.head_stride_out, "head stride of out");
  a.nhead_stride_lse = narrow(c.head_stride_lse, "head stride of lse");
  a.batch_stride_q = narrow(c.batch_stride_q, "batch stride of q");
  a.batch_stride_k = narrow(c.batch_stride_k, "batch or page stride of k");
  a.batch_stride_v = narrow(c.batch_stride_v, "batch or page stride of v");
  a.batch_stride_o = narrow(c.batch_stride_out, "batch stride of out");
  a.batch_stride_lse = narrow(c.batch_stride_lse, "batch stride of lse");
}

template <typename Args> void fill_sizes(Args& a, const rk_aiter_call& c, Narrow& narrow) {
  a.seqlen_q = narrow(c.q_len, "number of queries");
  a.seqlen_k = narrow(c.kv_len, "number of keys");
  a.batch = narrow(c.batch, "batch");
  a.max_seqlen_q = narrow(c.max_q_len, "longest query sequence");
  a.hdim_q = narrow(c.head_dim_qk, "head dim of q and k");
  a.hdim_v = narrow(c.head_dim_vo, "head dim of v");
  a.nhead_q = narrow(c.num_qo_heads, "number of query heads");
  a.nhead_k = narrow(c.num_kv_heads, "number of key heads");
}

// The one place where a mask is told to AITER. A right window of 0 is what causal means, so a window without
// causal has none; and without a mask type the windows are not looked at.
template <typename Args> void fill_mask(Args& a, const rk_aiter_call& c, Narrow& narrow) {
  const bool has_window = c.window_left >= 0;
  a.mask_type = c.causal || has_window ? kBottomRight : kNoMask;
  a.window_size_left = has_window ? narrow(c.window_left, "window_left") : -1;
  a.window_size_right = c.causal ? 0 : -1;
}

// Everything that mha_fwd and mha_batch_prefill share. What is not set here is zero: no bias, no dropout, no
// sink, no scales of quantised tensors.
template <typename Args> void fill_common(Args& a, const rk_aiter_call& c, Narrow& narrow) {
  fill_tensors(a, c, narrow);
  fill_sizes(a, c, narrow);
  fill_mask(a, c, narrow);
  a.seqstart_q_ptr = pointer(c.q_indptr);
  a.scale_s = static_cast<float>(c.scale);
  a.logits_soft_cap = static_cast<float>(c.logits_soft_cap);
  if constexpr (requires { a.scale_p; })
    a.scale_p = a.scale_o = 1;
}

template <typename Args> void fill_forward(Args& a, const rk_aiter_call& c, Narrow& narrow) {
  fill_common(a, c, narrow);
  a.seqstart_k_ptr = pointer(c.kv_indptr);
  if constexpr (requires { a.data_type; }) {
    a.use_asm_v3 = c.hand_written;
    a.how_v3_bf16_cvt = kRoundToEven;
    a.data_type.set(dtype_name(c));
    a.is_group_mode = c.is_ragged;
    a.has_lse = c.lse != 0;
  }
  if constexpr (requires { a.block_scale_size_q; })
    a.block_scale_size_q = a.block_scale_size_kv = 128; // what AITER itself gives where there are no scales
}

template <typename Args> void fill_paged(Args& a, const rk_aiter_call& c, Narrow& narrow) {
  fill_common(a, c, narrow);
  a.num_total_pages = narrow(c.num_pages, "number of pages");
  a.kv_indptr = pointer(c.kv_indptr);
  a.kv_page_indices = pointer(c.kv_indices);
  if constexpr (requires { a.page_block_size; }) {
    a.page_block_size = narrow(c.page_size, "page size");
    a.kv_memory_layout = kLinearPages;
    a.kv_lookup_table = kFlatPageTable;
    a.kv_last_page_lens = pointer(c.last_page_len);
  }
}

} // namespace rocade::aiter

// The C ABI of the AITER loader: opens a library that AITER built and calls its C++ attention function.
//
// It lies in the same library as the CPU kernels and shares nothing with them. Structs hold only 8-byte
// fields. Every function may be called by many threads at once.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef RK_API
#define RK_API __attribute__((visibility("default")))
#endif

enum rk_aiter_status {
  RK_AITER_OK = 0,
  RK_AITER_NOT_LOADED = 1,      // the dynamic linker's text says why
  RK_AITER_NO_KERNEL = 2,       // nothing was computed
  RK_AITER_THREW = 3,           // the text is the exception's
  RK_AITER_NOT_EXPRESSIBLE = 4, // the text names what AITER's arguments cannot say
};

enum rk_aiter_dtype { RK_AITER_FP16 = 0, RK_AITER_BF16 = 1 };

// One call. Addresses are of GPU memory, strides count elements, index arrays are int32.
typedef struct rk_aiter_call {
  int64_t stream; // the driver's handle
  int64_t dtype;
  int64_t is_ragged;    // sequences differ in length: q_indptr and kv_indptr say where they begin
  int64_t hand_written; // the library is one of hand-written kernels
  int64_t q, k, v, out;
  int64_t lse;                       // 0 for none
  int64_t q_indptr, kv_indptr;       // [batch + 1]
  int64_t kv_indices, last_page_len; // pages only
  int64_t page_size, num_pages;      // pages only; pages of the whole pool
  int64_t batch, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo;
  int64_t q_len, kv_len, max_q_len; // ragged: all sequences together, and the longest
  int64_t token_stride_q, token_stride_k, token_stride_v, token_stride_out;
  int64_t head_stride_q, head_stride_k, head_stride_v, head_stride_out, head_stride_lse;
  int64_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_out, batch_stride_lse; // or of pages
  int64_t causal;
  int64_t window_left; // negative for none
  double scale, logits_soft_cap;
} rk_aiter_call;

RK_API int64_t rk_aiter_call_size(void); // of rk_aiter_call, for callers to compare

// Size in bytes of the argument struct of a layout, by the names in versions.py; 0 for a name that is not
// known.
RK_API int64_t rk_aiter_layout_size(const char* layout);

// Opens a library, once a process, and looks its function up. `*handle` stays valid as long as the process.
RK_API int32_t rk_aiter_open(const char* path, const char* symbol, const char* layout, int64_t* handle,
                             char* text, int64_t text_bytes);

// Calls the function, which queues kernels on the stream. `text` says what is wrong, when something is.
RK_API int32_t rk_aiter_run(int64_t handle, const rk_aiter_call* call, char* text, int64_t text_bytes);

#ifdef __cplusplus
}
#endif

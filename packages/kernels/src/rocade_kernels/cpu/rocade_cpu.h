// The C ABI of rocade's CPU library: checks, planner, attention, merges, append. The only header a caller
// needs.
//
// All sizes, strides and offsets are int64; strides count elements. Structs hold only 8-byte fields, so that
// a caller in any language can pack them as one array; `rk_struct_sizes` lets it check that it agrees with
// this file.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RK_ABI_VERSION 5
#define RK_API __attribute__((visibility("default")))

// Storage types. Arithmetic is fp32 whatever the storage.
enum rk_dtype { RK_FP32 = 0, RK_FP16 = 1, RK_BF16 = 2 };
enum rk_mask { RK_MASK_NONE = 0, RK_MASK_CAUSAL = 1, RK_MASK_CUSTOM = 2 };

// Results of calls that can refuse. Faults of checks have their own numbers, listed at rk_check_indptr.
enum rk_status {
  RK_OK = 0,
  RK_BAD_ARGUMENT = 1,
  RK_NO_MEMORY = 2,
  RK_BAD_LEVELS = 3,
  RK_BAD_MASK = 4,
  RK_TOO_LONG = 5
};

RK_API int64_t rk_abi_version(void);
RK_API const char* rk_source_hash(void);     // hash of the sources and flags this library was built from
RK_API void rk_struct_sizes(int64_t* sizes); // [8]: every struct below, in order
RK_API int64_t rk_isa_count(void);           // instruction sets in this library that this CPU can run
RK_API const char* rk_isa_name(int64_t isa); // "plain", "avx2", "avx512"; the last one is the best

// ---- checks
// ---------------------------------------------------------------------------------------------------------

// 0 fine, 1 first entry, 2 decreases, 3 last entry above limit. first = -1 allows any first entry >= 0, limit
// = -1 any last entry. facts[4]: where, the value there, longest difference, last entry.
RK_API int32_t rk_check_indptr(const int32_t* indptr, int64_t entries, int64_t first, int64_t limit,
                               int64_t* facts);

// The plan arrays of one level, as a caller gave them. qo_indptr may be null where there is one level.
typedef struct rk_level_arrays {
  const int32_t* qo_indptr;     // [batch + 1]
  const int32_t* kv_indptr;     // [batch + 1], pages; rows of dense K and V when page_size is 0
  const int32_t* last_page_len; // [batch]; null when page_size is 0
  const int32_t* indices;       // page ids; null: not to be read
  int64_t num_indices;
  int64_t batch;
  int64_t page_size; // 0: dense
} rk_level_arrays;

// Copies the arrays and checks the copies: for each level, one after another, qo_indptr if given, kv_indptr,
// last_page_len if paged, and kv_len[batch], which is computed. Faults: 1, 2 of a kv_indptr, 4 last_page_len,
// 5 too few indices, 6 negative page, 7 kv_len beyond int32; 9, 10 (8 + 1, 2) of a qo_indptr; 16 the next
// level has `value` rows; 17 not a boundary of the next level; 18 the levels together hold more keys than
// int32. facts[3 + 4 * num_levels]: where, value, level; then for each level rows, rows of the longest
// request, largest page (-1: none), keys of the longest request.
RK_API int32_t rk_check_levels(const rk_level_arrays* levels, int64_t num_levels, int32_t* copies,
                               int64_t* facts);

// ---- plans
// ----------------------------------------------------------------------------------------------------------

// One range of keys per query row. kv_indptr counts pages when page_size > 0, rows of dense K and V
// otherwise.
typedef struct rk_level {
  const int32_t* qo_indptr; // [batch + 1]
  const int32_t* kv_indptr; // [batch + 1]
  const int32_t* kv_len;    // [batch], tokens
  int64_t batch;
  int64_t page_size; // 0: dense
} rk_level;

typedef struct rk_plan_args {
  const rk_level* levels; // [num_levels], most shared first; each level's rows nest in the one before
  int64_t num_levels;
  int64_t num_rows; // T; every level's qo_indptr ends here
  int64_t num_qo_heads, num_kv_heads;
  int64_t head_dim_qk, head_dim_vo;
  int64_t kv_dtype;
  int64_t mask;               // rk_mask; custom needs num_levels == 1
  const int64_t* mask_indptr; // [batch + 1], first byte of each request's packed bits
  int64_t window_left;        // -1: none
  int64_t alibi;              // 1: add slope[h] * (key position - query position)
  int64_t fixed_split_size;   // KV tokens a split, 0: the planner decides
  int64_t disable_split;      // 1: one item per KV range whatever the batch
  int64_t share;              // cascade: -1 the cost model decides, 0 never, 1 always
  int64_t threads;
  int64_t isa; // -1: the best
} rk_plan_args;

typedef struct rk_plan rk_plan;

// Copies what it needs. facts[6] on success: workspace bytes, items, shared nodes, partial rows, units,
// scratch bytes.
RK_API int32_t rk_plan_create(const rk_plan_args* args, rk_plan** plan, int64_t* facts);
RK_API void rk_plan_free(rk_plan* plan);

// Describes the work list: 9 values a unit (first row, end row, first key, end key, level, request, KV heads
// an item, first partial row or -1, packed), in order of execution. Returns the number of units; writes at
// most `capacity`.
RK_API int64_t rk_plan_units(const rk_plan* plan, int64_t* units, int64_t capacity);

// ---- attention
// ------------------------------------------------------------------------------------------------------

typedef struct rk_level_tensors {
  const void *k, *v;
  int64_t k_stride[3];    // page (0 when dense), row, head
  int64_t v_stride[3];    //
  int64_t pool;           // pages, or rows when dense; what a table points at beyond it is skipped
  const int32_t* indices; // page ids, null when dense
  int64_t num_indices;    // readable page ids; a plan that needs more skips them
} rk_level_tensors;

typedef struct rk_run_args {
  const rk_level_tensors* levels;
  int64_t num_levels;
  int64_t num_rows; // rows in q, out, lse: at least the plan's
  const void* q;
  int64_t q_dtype, q_stride[2]; // row, head; the last dimension is contiguous everywhere
  void* out;
  int64_t out_dtype, out_stride[2];
  float* lse; // may be null
  int64_t lse_stride[2];
  const void* partial_out; // may be null; merged in as one more KV range, after v_scale
  int64_t partial_dtype, partial_stride[2];
  const float* partial_lse;
  int64_t partial_lse_stride[2];
  const uint8_t* mask_bits;
  int64_t mask_bytes;
  double sm_scale, v_scale, soft_cap; // soft_cap 0: none
  void* workspace;                    // at least the plan's workspace bytes, 4-byte aligned
  int64_t workspace_bytes;
  int64_t threads;
} rk_run_args;

RK_API int32_t rk_plan_run(const rk_plan* plan, const rk_run_args* args);

// ---- states and pages
// -----------------------------------------------------------------------------------------------

// Merges lists of states: row i of the result merges rows indptr[i]:indptr[i + 1] of v, or i * fixed:(i + 1)
// * fixed when indptr is null. Ranges outside v's rows are cut. s null: plain sums, s_out unused. Strides:
// row, head.
typedef struct rk_merge_args {
  const void* v;
  int64_t v_dtype, v_stride[2], rows;
  const float* s;
  int64_t s_stride[2];
  const int32_t* indptr;
  int64_t fixed;
  void* v_out;
  int64_t out_dtype, out_stride[2];
  float* s_out;
  int64_t s_out_stride[2];
  int64_t num_out, heads, dim;
  int64_t threads, isa;
} rk_merge_args;

RK_API int32_t rk_merge(const rk_merge_args* args);

// Merges two states; the result may be either input. mask[n] may be null; rows whose byte is 0 are not
// written.
typedef struct rk_merge_pair_args {
  const void* v_a;
  int64_t a_dtype, a_stride[2];
  const float* s_a;
  int64_t s_a_stride[2];
  const void* v_b;
  int64_t b_dtype, b_stride[2];
  const float* s_b;
  int64_t s_b_stride[2];
  void* v_out;
  int64_t out_dtype, out_stride[2];
  float* s_out;
  int64_t s_out_stride[2];
  const uint8_t* mask;
  int64_t rows, heads, dim;
  int64_t threads, isa;
} rk_merge_pair_args;

RK_API int32_t rk_merge_pair(const rk_merge_pair_args* args);

// Writes key and value rows [rows, heads, dim] into paged caches of the same element size. Rows whose batch
// index is outside 0..batch-1, whose position is negative or beyond the table, or whose page is outside the
// pool are skipped.
typedef struct rk_append_args {
  const void *key, *value;
  int64_t key_stride[2], value_stride[2];
  const int32_t *batch_indices, *positions;
  int64_t rows;
  void *k_cache, *v_cache;
  int64_t k_stride[3], v_stride[3]; // page, row, head
  int64_t pool, page_size;
  const int32_t *indices, *indptr;
  int64_t num_indices, batch;
  int64_t heads, k_dim, v_dim, element_size;
  int64_t threads;
} rk_append_args;

RK_API int32_t rk_append(const rk_append_args* args);

// ---- threads
// ---------------------------------------------------------------------------------------------------------

// Threads of every run from now on: teams of an OpenMP runtime, by its GOMP_parallel and omp_get_thread_num,
// or our own pool when either is null. A child of fork starts with our own pool.
RK_API void rk_use_team(void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags),
                        int (*number)(void));

#ifdef __cplusplus
}
#endif

// The C ABI of the GPU planner: from plan arrays to the work list that the attention kernel walks.
//
// A list is made in two calls, so that it is written once, where the caller wants it: `rk_work_plan` decides
// and says how large it is, `rk_work_write` writes it. All sizes are int64 or double, 8 bytes a field.
#pragma once
#include "../cpu/rocade_cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// A shape of the attention kernel, and what it costs on one device. Times are nanoseconds of one block while
// all blocks run.
typedef struct rk_work_shape {
  int64_t rows;        // packed query rows of a tile
  int64_t keys;        // of a step; ranges are visited step by step
  int64_t blocks;      // that run at the same time
  int64_t unit_blocks; // of them, on one compute unit: block b runs on unit b % (blocks / unit_blocks)
  double step_ns;      // a tile of rows against a step of keys
  double item_ns;      // what every item costs beside its steps
  double piece_ns;     // a tile whose result is partial: stored and merged
} rk_work_shape;

typedef struct rk_work_args {
  const rk_level* levels; // [num_levels], most shared first; each level's rows nest in the one before
  int64_t num_levels;
  const int64_t* first_entry; // [num_levels], place of each level's page table or first dense row
  int64_t num_rows;           // T; every level's qo_indptr ends here
  int64_t num_qo_heads, num_kv_heads;
  int64_t head_dim;
  int64_t mask;               // rk_mask; custom needs num_levels == 1
  const int64_t* mask_indptr; // [batch + 1], first byte of each request's packed bits
  int64_t window_left;        // -1: none
  int64_t fixed_split_size;   // keys a split, 0: the planner decides
  int64_t disable_split;
  int64_t float_limit;      // bytes that partial states may take: fewer cuts then. -1: any. Not of a graph
  int64_t only_level;       // -1: all; else a list for this level alone, with positions of the whole sequence
  rk_work_shape shapes[2];  // few query rows, many query rows
  double launch_ns;         // one launch more
  int64_t merge_rows;       // tokens that a merge item has at most
  int64_t graph;            // 1: sizes are for every plan within the limits below
  int64_t max_rows;         // T at most
  int64_t max_rows_request; // of one request of the last level
  const int64_t* max_keys;  // [num_levels], of all requests of a level together
} rk_work_args;

// What a plan decided. Offsets are bytes from the start of the list, sizes bytes.
typedef struct rk_work_facts {
  int64_t bytes;       // that rk_work_write writes
  int64_t capacity;    // of the list: graph mode's, else `bytes`
  int64_t float_bytes; // of the partial states: values [states, group, head_dim], then lse [states, group]
  int64_t lse_offset;  // of the lse within them
  int64_t grid[4];     // blocks of each launch, 0: none; paged levels few rows, many rows, then dense levels
  int64_t first_item[4]; // int32 [blocks + 1]: where a block's other items are, from its launch's first on
  int64_t merge_grid;    // merge items to launch; 0: no merge
  int64_t merge_count, merges, pieces;
  int64_t positions; // -1: none
  int64_t items;     // the first ones of all launches' blocks, launch after launch, then all others
  int64_t num_items, num_merges, num_states;
} rk_work_facts;

// One piece of work of the attention kernel; `AttentionItem` of hip_abi.py, which says what the fields mean.
typedef struct rk_work_item {
  int64_t mask_bit, kv_base;
  int32_t q_begin, q_len, row_begin, kv_head, kv_begin, kv_end, q_position, kv_position;
  uint32_t flags;
  int32_t state, kv_heads, mask_step;
} rk_work_item;

// Rows whose states are merged: state j of token row + i is pieces[first + j] + i. `MergeItem` of hip_abi.py.
typedef struct rk_work_merge {
  int32_t row, rows, kv_head, first, count, reserved;
} rk_work_merge;

typedef struct rk_work_planner rk_work_planner;

RK_API void rk_work_struct_sizes(int64_t* sizes); // [4]: args, facts, item, merge
RK_API rk_work_planner* rk_work_create(void);     // null: no memory
RK_API void rk_work_free(rk_work_planner* planner);
// Reads all arrays of `args`, and keeps what `rk_work_write` needs until the next plan.
RK_API int32_t rk_work_plan(rk_work_planner* planner, const rk_work_args* args, rk_work_facts* facts);
// Writes facts.bytes bytes to `to`, 16-byte aligned.
RK_API int32_t rk_work_write(const rk_work_planner* planner, void* to);

#ifdef __cplusplus
}
#endif

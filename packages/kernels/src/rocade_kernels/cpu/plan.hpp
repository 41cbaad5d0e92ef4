// What a plan is: the tree of KV ranges, the units of work cut from it, and who merges what. Data only,
// shared by the planner and by the kernels of every instruction set.
#pragma once
#include "array.hpp"
#include "rocade_cpu.h"

namespace rk {

// One request of one level: a range of keys. Its parent holds the keys before it, in the level above.
struct Node {
  int64_t first_entry; // index into the page table, or first dense row
  int64_t mask_byte;   // first byte of the request's packed mask
  int32_t kv_len;
  int32_t offset; // global position of its first key
  int32_t level;
  int32_t request;
  int32_t parent; // index, -1 at the root
  int32_t row_begin, row_end;
};

// A block of rows against a contiguous range of global key positions, which `node` and its ancestors hold.
struct Unit {
  int32_t row_begin, row_end;
  int32_t key_begin, key_end;
  int32_t node;
  int32_t heads;  // KV heads that one item of this unit takes
  int32_t packed; // 1: matrix products on packed tiles; 0: dot products on rows in place
  int32_t merge;  // index of its first row's merge; its other rows' follow. Only when part >= 0
  int64_t part;   // first partial row, -1 when the unit writes the result itself
};

struct Item {
  int32_t unit;
  int32_t head; // first KV head
};

// A row that no unit finishes: the states parts[begin:end] are merged, none of them gives (0, -inf).
struct Merge {
  int32_t row;
  int32_t begin, end;
};

// Neighbouring merges done in one go, by the thread that finishes the last item they wait for. So a run has
// no second phase: no thread waits for one that was preempted, but at the end.
constexpr int64_t kMergeRows = 8;

struct Shape {
  int64_t rows, qo_heads, kv_heads, group;
  int64_t dim_qk, dim_vo;
  int64_t kv_dtype, mask, window_left, alibi;
};

struct LevelFacts {
  int64_t page_size; // 0: dense
};

} // namespace rk

struct rk_plan {
  rk::Shape shape;
  rk::Array<rk::LevelFacts> levels;
  rk::Array<rk::Node> nodes;
  rk::Array<int32_t> row_position; // global position of each row
  rk::Array<rk::Unit> units;
  rk::Array<rk::Item> items;
  rk::Array<rk::Merge> merges;
  rk::Array<int64_t> parts; // partial row of each entry of the merge lists
  rk::Array<int32_t> waits; // items that each group of kMergeRows merges waits for
  rk::Array<int32_t> ready; // groups that wait for none
  rk::Array<float> slopes;  // ALiBi, one a query head
  int64_t partial_rows;
  int64_t shared_nodes;
  int64_t scratch_bytes; // of one thread
  int64_t isa;
  int64_t mask_bytes; // the mask must hold this many
};

namespace rk {

// One run: the plan, the caller's tensors, and where the partial rows live.
struct Run {
  const rk_plan* plan;
  const rk_run_args* args;
  float* part_out; // [partial_rows, qo_heads, dim_vo]
  float* part_lse; // [partial_rows, qo_heads]
};

// The entry points of one instruction set.
struct Kernels {
  const char* name;
  void (*attend)(const Run&, const Item&, void* scratch);
  void (*merge_rows)(const Run&, int64_t begin, int64_t end, void* scratch);
  void (*merge)(const rk_merge_args&, int64_t begin, int64_t end);
  void (*merge_pair)(const rk_merge_pair_args&, int64_t begin, int64_t end);
  uint32_t (*largest)(const int32_t* values, int64_t count); // as unsigned, so that negative values win
  // For units of at most so many rows; 0: none of that kind.
  int64_t (*scratch_bytes)(const Shape&, int64_t rows_in_place, int64_t rows_packed);
};

// Instruction sets that this CPU can run, worst first.
int64_t isa_count();
const Kernels& isa_kernels(int64_t isa); // -1: the best

} // namespace rk

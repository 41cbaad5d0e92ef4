// The planner of GPU work: data between its steps, which are units.cpp, balance.cpp, merges.cpp and
// work_list.cpp.
//
// A unit is a run of tokens of one request, as many as a tile holds, against the keys of one level that they
// see. With each KV head it is an element: what one block does, or what several blocks share by keys.
#pragma once
#include <math.h>

#include "../cpu/planner.hpp"
#include "work_list.h"

namespace rk {

enum { kFew = 0, kMany = 1, kShapes = 2 }; // query rows of a tile
constexpr int kLaunches = 2 * kShapes;     // paged levels, then dense ones
constexpr int64_t kAlign = 16;             // bytes, of every part

struct WorkUnit {
  int32_t node;
  int32_t row, tokens;        // first query row
  int32_t key_begin, key_end; // of the node
  int32_t steps;
  int32_t q_position, kv_position; // global: of the first token, of the node's first key
  uint32_t flags;                  // kItemCausal, kItemPositions
  int32_t shape, launch;
  int32_t alone;       // no other unit has any of its rows
  int32_t first_split; // in `splits`: one a KV head when not alone; -1: none
};

constexpr uint32_t kItemCausal = 1, kItemPositions = 2; // AttentionItem::flags

// A place in the sequence of elements of one launch: unit order[unit], a KV head, a step within.
struct WorkPlace {
  int32_t unit, head, step;
};

// An element with partial results: `count` pieces of unit.tokens states each.
struct WorkSplit {
  int32_t unit, head;
  int32_t first_state, count;
};

// An element: a unit (of `units`) with one KV head.
struct WorkDeal {
  int32_t unit, head;
};

// What balance.cpp decides for one launch.
struct WorkShare {
  Array<int32_t> order;   // units of this launch
  Array<WorkPlace> begin; // of each block, and the end
  Array<WorkPlace> other; // the candidate that lost
  int64_t steps;          // of all units, for one KV head
  double total;           // of all elements, nanoseconds
  int64_t cut_blocks;     // blocks at most when elements are cut
  bool cut;               // some block begins within an element
  // Whole elements in the order of the blocks that they are dealt to, instead of `begin`. Empty: not dealt.
  Array<WorkDeal> dealt;
  Array<int32_t> dealt_first; // [blocks + 1], into `dealt`

  int64_t blocks() const {
    return dealt.size() > 0 ? dealt_first.size() - 1 : begin.size() > 0 ? begin.size() - 1 : 0;
  }
  // Blocks with work: of a line, all of them.
  int64_t busy_blocks() const {
    int64_t busy = dealt.size() > 0 ? 0 : blocks();
    for (int64_t b = 0; dealt.size() > 0 && b < blocks(); ++b)
      busy += dealt_first[b + 1] > dealt_first[b];
    return busy;
  }
};

} // namespace rk

struct rk_work_planner {
  rk_plan tree; // nodes and row positions
  rk::Array<rk::WorkUnit> units;
  rk::WorkShare shares[rk::kLaunches];
  rk::Array<rk::WorkSplit> splits; // in the order in which the launches' blocks meet them
  rk::Array<int32_t> cover;        // units of each row; empty when every row has one
  rk::Array<int32_t> cover_first;  // [rows + 1], into cover_units
  rk::Array<int32_t> cover_units;
  rk::Array<rk_work_merge> merges;
  rk::Array<int32_t> pieces;
  rk::Array<int64_t> by_cost;       // of one launch's units, when they are dealt
  rk::Array<double> loads, slots;   // of compute units, of blocks
  rk::Array<int32_t> heap;          // compute units, the least loaded first
  rk::Array<int32_t> owners, homes; // compute units and blocks of elements
  rk_work_args args;                // the arrays it points to are not kept
  int64_t first_entry_of_level[64];
  int64_t group, heads;
  int64_t tokens[rk::kShapes]; // that a tile holds, at least 1
  int64_t tiles[rk::kShapes];  // that one token takes; above 1 only when tokens is 1
  bool positions;              // some unit needs them
  int64_t num_states, num_items;
  rk_work_facts facts;

  bool free_to_cut() const { return args.fixed_split_size == 0 && args.disable_split == 0; }
  const rk_work_shape& shape_of(int launch) const { return args.shapes[launch % rk::kShapes]; }
  bool one_level() const { return args.num_levels == 1 || args.only_level >= 0; }
  double element_ns(int shape, int32_t steps) const {
    return static_cast<double>(tiles[shape]) *
           (args.shapes[shape].item_ns + steps * args.shapes[shape].step_ns);
  }
  double element_ns(const rk::WorkUnit& unit) const { return element_ns(unit.shape, unit.steps); }
  int64_t state_bytes() const { return group * static_cast<int64_t>(sizeof(float)); } // but for the head dim
  int64_t float_bytes(int64_t states) const {
    return aligned(states * state_bytes() * args.head_dim) + aligned(states * state_bytes());
  }
  static int64_t aligned(int64_t bytes) { return (bytes + rk::kAlign - 1) / rk::kAlign * rk::kAlign; }
  bool failed() const;
};

namespace rk {

rk_status list_units(rk_work_planner& plan); // units.cpp
void balance(rk_work_planner& plan, int launch);
/// How fast a block is while so many of its compute unit run: 1 while all do.
double block_speed(const rk_work_shape& shape, int64_t running);
double deal(rk_work_planner& plan, int launch); // deal.cpp
// Elements a block that are dealt at most. With more, shares of a line are even enough, and dealing would
// take longer than it saves; elements of few rows are short, and cheap to cut.
constexpr int64_t kMostDealt[kShapes] = {2, 8};
void find_cover(rk_work_planner& plan); // merges.cpp
void number_states(rk_work_planner& plan);
void list_merges(rk_work_planner& plan);

} // namespace rk

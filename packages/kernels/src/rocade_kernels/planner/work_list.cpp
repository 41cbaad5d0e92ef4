// The C ABI of the GPU planner: checks, sizes for now or for a whole graph, and the list itself.
#include <new>

#include "work_planner.hpp"

namespace rk {
namespace {

constexpr int64_t kMaxLevels = 64;
constexpr int64_t kMaxBytes = int64_t{1} << 40; // of a list: larger ones are refused, not computed with

int64_t aligned(int64_t bytes) { return rk_work_planner::aligned(bytes); }

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

bool is_shape(const rk_work_shape& shape) {
  return shape.rows >= 1 && shape.rows <= 1 << 16 && shape.keys >= 1 && shape.keys <= 1 << 16 &&
         shape.blocks >= 1 && shape.blocks <= 1 << 20 && shape.unit_blocks >= 1 &&
         shape.blocks % shape.unit_blocks == 0 && shape.step_ns > 0 && shape.item_ns > 0 &&
         shape.piece_ns >= 0 && shape.step_ns < 1e9 && shape.item_ns < 1e9 && shape.piece_ns < 1e9;
}

bool is_sane(const rk_work_args& args) {
  if (args.only_level < -1 || args.only_level >= args.num_levels)
    return false;
  if (args.num_levels < 1 || args.num_levels > kMaxLevels || args.first_entry == nullptr)
    return false;
  if (args.graph != 0 &&
      (args.max_keys == nullptr || args.max_rows < args.num_rows || args.max_rows > INT32_MAX / 2 ||
       args.max_rows_request < 0 || args.max_rows_request > INT32_MAX))
    return false;
  for (int64_t level = 0; args.graph != 0 && level < args.num_levels; ++level)
    if (args.max_keys[level] < 0)
      return false;
  return is_shape(args.shapes[kFew]) && is_shape(args.shapes[kMany]) && args.merge_rows >= 1 &&
         args.merge_rows <= 1 << 16 && args.launch_ns >= 0 && args.fixed_split_size <= INT32_MAX &&
         args.float_limit >= -1;
}

rk_status build(const rk_work_args& args, rk_plan& tree) {
  tree.nodes.resize(0);
  tree.levels.resize(0);
  const rk_plan_args plain = {args.levels,
                              args.num_levels,
                              args.num_rows,
                              args.num_qo_heads,
                              args.num_kv_heads,
                              args.head_dim,
                              args.head_dim,
                              RK_FP16,
                              args.mask,
                              args.mask_indptr,
                              args.window_left,
                              0,
                              args.fixed_split_size,
                              args.disable_split,
                              1,
                              1,
                              -1};
  return build_tree(plain, tree);
}

void start(rk_work_planner& plan, const rk_work_args& args) {
  plan.args = args;
  plan.heads = args.num_kv_heads;
  plan.group = args.num_qo_heads / args.num_kv_heads;
  plan.positions = false;
  plan.units.resize(0);
  for (int64_t level = 0; level < args.num_levels; ++level)
    plan.first_entry_of_level[level] = args.first_entry[level];
  for (int s = 0; s < kShapes; ++s) {
    const int64_t rows = args.shapes[s].rows;
    plan.tokens[s] = plan.group > rows ? 1 : rows / plan.group;
    plan.tiles[s] = plan.group > rows ? (plan.group + rows - 1) / rows : 1;
  }
  for (int launch = 0; launch < kLaunches; ++launch) {
    WorkShare& share = plan.shares[launch];
    share.order.resize(0);
    share.steps = 0;
    share.total = 0;
    share.cut_blocks = plan.shape_of(launch).blocks;
  }
}

// Fewer cuts, until the partial states fit the memory there is or nothing is cut any more. Every cut adds
// about as many states as any other, so the share of them that fits is near the share of the memory; each
// further try gives up a sixteenth of the blocks more.
void fit_states(rk_work_planner& plan) {
  const int64_t limit = plan.args.float_limit;
  for (int64_t tries = 0; plan.float_bytes(plan.num_states) > limit; ++tries) {
    const double part = static_cast<double>(limit) / static_cast<double>(plan.float_bytes(plan.num_states));
    bool cut = false;
    for (int launch = 0; launch < kLaunches; ++launch) {
      WorkShare& share = plan.shares[launch];
      if (!share.cut)
        continue;
      const int64_t blocks = share.blocks();
      share.cut_blocks =
          smaller(static_cast<int64_t>(part * static_cast<double>(blocks)), blocks - 1) - tries * blocks / 16;
      balance(plan, launch);
      cut = true;
    }
    if (!cut)
      return;
    for (WorkUnit& unit : plan.units)
      unit.first_split = -1;
    number_states(plan);
  }
}

// How much of everything there is, or may be.
struct Sizes {
  int64_t blocks[kLaunches], items, merges, pieces, positions, states;
};

Sizes sizes_now(const rk_work_planner& plan) {
  return {
      {plan.shares[0].blocks(), plan.shares[1].blocks(), plan.shares[2].blocks(), plan.shares[3].blocks()},
      plan.num_items,
      plan.merges.size(),
      plan.pieces.size(),
      plan.positions ? plan.args.num_rows : 0,
      plan.num_states};
}

// Units that requests of at most `rows` rows and `keys` keys together may have in a shape, and the tokens of
// them all. One request with everything has the most pieces.
struct Bound {
  int64_t units, tokens;
};

Bound level_bound(const rk_work_planner& plan, int64_t level, int shape) {
  const rk_work_args& args = plan.args;
  const int64_t batch = args.levels[level].batch, rows = args.max_rows;
  const int64_t units = batch + rows / plan.tokens[shape];
  if (args.fixed_split_size == 0)
    return {units, rows};
  // Ends cut by a window included. What is too many is refused later, and must not overflow before.
  const int64_t splits = smaller(args.max_keys[level] / args.fixed_split_size, INT32_MAX) + 2;
  return {smaller(units * splits, int64_t{1} << 31), smaller(rows * splits, int64_t{1} << 31)};
}

// What one launch may need; adds to `most`, but for its states where every result is partial.
void add_launch(const rk_work_planner& plan, int launch, Sizes& most, Bound& all) {
  const rk_work_args& args = plan.args;
  const int shape = launch % kShapes;
  const int64_t few = args.shapes[kFew].rows;
  if (shape == kMany && plan.one_level() && args.num_levels == 1 && args.max_rows_request * plan.group <= few)
    return;
  Bound here = {0, 0};
  for (int64_t level = 0; level < args.num_levels; ++level)
    if ((args.levels[level].page_size > 0) == (launch < kShapes) &&
        (args.only_level < 0 || args.only_level == level)) {
      const Bound bound = level_bound(plan, level, shape);
      here.units += bound.units;
      here.tokens += bound.tokens;
    }
  if (here.units == 0)
    return;
  const int64_t cuts = plan.free_to_cut() ? args.shapes[shape].blocks - 1 : 0;
  const int64_t elements = here.units * plan.heads, blocks = args.shapes[shape].blocks;
  const int64_t dealt = kMostDealt[shape] * blocks, line = here.units + blocks + cuts * plan.heads;
  const int64_t whole = smaller(elements, dealt > line ? dealt : line);
  const int64_t chunks = plan.tokens[shape] / args.merge_rows + 1;
  most.blocks[launch] = blocks;
  most.items +=
      ((plan.tiles[shape] > 1 || !plan.one_level() || args.fixed_split_size > 0 ? elements : whole) + cuts) *
      plan.tiles[shape];
  most.states += 2 * cuts * plan.tokens[shape];
  most.merges += cuts * chunks;
  most.pieces += 2 * cuts * chunks;
  all.tokens += here.tokens;
}

// For any plan within the limits of a graph, whose kernels have their sizes and places fixed.
Sizes sizes_for_graph(const rk_work_planner& plan) {
  const rk_work_args& args = plan.args;
  Sizes most = {};
  Bound all = {0, 0};
  for (int launch = 0; launch < kLaunches; ++launch)
    add_launch(plan, launch, most, all);
  if (!plan.one_level() || args.fixed_split_size > 0) {
    most.states += all.tokens * plan.heads;
    most.merges += args.max_rows * plan.heads;
    most.pieces += all.tokens * plan.heads + most.states;
  }
  if (args.num_levels > 1 && (args.mask == RK_MASK_CAUSAL || args.window_left >= 0))
    most.positions = args.max_rows;
  return most;
}

bool fits(const Sizes& now, const Sizes& most) {
  bool all = now.items <= most.items && now.merges <= most.merges && now.pieces <= most.pieces &&
             now.positions <= most.positions && now.states <= most.states;
  for (int launch = 0; launch < kLaunches; ++launch)
    all &= now.blocks[launch] <= most.blocks[launch];
  return all;
}

rk_status lay_out(rk_work_planner& plan) {
  const Sizes now = sizes_now(plan);
  const bool graph = plan.args.graph != 0;
  const Sizes most = graph ? sizes_for_graph(plan) : now;
  if (!fits(now, most) || most.states > INT32_MAX || most.pieces > INT32_MAX || most.merges > INT32_MAX ||
      most.items > INT32_MAX)
    return RK_TOO_LONG;
  const bool merge = graph ? most.merges > 0 : now.merges > 0;
  rk_work_facts& f = plan.facts;
  int64_t at = 0;
  for (int launch = 0; launch < kLaunches; ++launch) {
    f.grid[launch] = most.blocks[launch];
    f.first_item[launch] = at;
    at += aligned((most.blocks[launch] + 1) * static_cast<int64_t>(sizeof(int32_t)));
  }
  f.merge_grid = merge ? most.merges : 0;
  f.merge_count = at;
  f.merges = at += kAlign;
  f.pieces = at += aligned(most.merges * static_cast<int64_t>(sizeof(rk_work_merge)));
  at += aligned(most.pieces * static_cast<int64_t>(sizeof(int32_t)));
  f.positions = most.positions > 0 ? at : -1;
  f.items = at += aligned(most.positions * static_cast<int64_t>(sizeof(int32_t)));
  int64_t first = 0, used = 0; // places of blocks' first items, and those that hold one
  for (int launch = 0; launch < kLaunches; ++launch) {
    first += most.blocks[launch];
    used += plan.shares[launch].busy_blocks();
  }
  f.bytes = at + (first + now.items - used) * static_cast<int64_t>(sizeof(rk_work_item));
  f.capacity = at + (first + most.items) * static_cast<int64_t>(sizeof(rk_work_item));
  f.lse_offset = aligned(most.states * plan.state_bytes() * plan.args.head_dim);
  f.float_bytes = plan.float_bytes(most.states);
  f.num_items = now.items;
  f.num_merges = now.merges;
  f.num_states = now.states;
  return f.capacity > kMaxBytes || now.items > INT32_MAX ? RK_TOO_LONG : RK_OK;
}

// Writes the items of one launch, block after block: each block's first one to its own place, others behind
// each other.
class Writer {
public:
  Writer(const rk_work_planner& plan, int launch, rk_work_item* own, rk_work_item* rest, int32_t* first)
      : plan_(plan), share_(plan.shares[launch]), keys_(plan.shape_of(launch).keys),
        tiles_(plan.tiles[launch % kShapes]), rows_(static_cast<int32_t>(plan.shape_of(launch).rows)),
        own_(own), rest_(rest), first_(first) {}

  // Returns where the next launch's others go. `split` is the next partial element, and moves on.
  rk_work_item* write(const WorkSplit*& split) {
    split_ = split;
    split_end_ = plan_.splits.end();
    const int64_t blocks = share_.blocks(), all = plan_.facts.grid[&share_ - plan_.shares];
    for (int64_t b = 0; b < all; ++b) {
      first_[b] = static_cast<int32_t>(rest_ - own_);
      next_ = own_ + b;
      if (b < blocks && share_.dealt.size() > 0)
        write_dealt(share_.dealt_first[b], share_.dealt_first[b + 1]);
      else if (b < blocks)
        write_block(share_.begin[b], share_.begin[b + 1]);
      if (next_ != nullptr) // no work
        memset(static_cast<void*>(next_), 0, sizeof *next_);
    }
    if (all > 0)
      first_[all] = static_cast<int32_t>(rest_ - own_);
    split = split_;
    return rest_;
  }

private:
  void write_block(WorkPlace at, WorkPlace end) {
    for (; at.unit <= end.unit; at = {at.unit + 1, 0, 0}) {
      const bool last = at.unit == end.unit;
      if (last && at.head == end.head && at.step == end.step)
        return;
      const int32_t u = share_.order[at.unit];
      const WorkUnit& unit = plan_.units[u];
      const int32_t heads = last ? end.head : static_cast<int32_t>(plan_.heads);
      while (at.head < heads) {
        const int32_t run = at.step > 0 ? at.head : whole_heads(unit, u, at.head, heads);
        if (run > at.head)
          write_item(unit, at.head, run - at.head, -1);
        else
          write_element(unit, u, at.head, at.step, unit.steps);
        at.head = run > at.head ? run : at.head + 1;
        at.step = 0;
      }
      if (last && at.step < end.step)
        write_element(unit, u, at.head, at.step, end.step);
    }
  }

  // The end of the heads from `head` on that one item takes: those with final results, of a single tile.
  int32_t whole_heads(const WorkUnit& unit, int32_t u, int32_t head, int32_t heads) const {
    if (tiles_ > 1)
      return head;
    const bool partial = split_ != split_end_ && split_->unit == u;
    if (unit.first_split < 0 || !partial)
      return unit.alone ? heads : head;
    return split_->head < heads ? split_->head : heads;
  }

  void write_dealt(int32_t at, int32_t end) {
    for (; at < end; ++at) {
      const WorkDeal& element = share_.dealt[at];
      const WorkUnit& unit = plan_.units[element.unit];
      write_element(unit, element.unit, element.head, 0, unit.steps);
    }
  }

  // Field by field into place: see Array::add.
  rk_work_item& write_item(const WorkUnit& unit, int32_t head, int32_t heads, int32_t state) {
    // Read before the first store, which for all that the compiler knows might change what is read.
    const Node& node = plan_.tree.nodes[unit.node];
    const bool masked = plan_.args.mask == RK_MASK_CUSTOM;
    const int64_t mask_bit =
        masked ? node.mask_byte * 8 + int64_t{unit.row - node.row_begin} * node.kv_len : 0;
    const int64_t kv_base = plan_.first_entry_of_level[node.level] + node.first_entry;
    const int32_t row = unit.row, tokens = unit.tokens, key_begin = unit.key_begin, key_end = unit.key_end,
                  q_position = unit.q_position, kv_position = unit.kv_position,
                  mask_step = masked ? node.kv_len : 0;
    const uint32_t flags = unit.flags;
    rk_work_item& item = next_ != nullptr ? *next_ : *rest_++;
    next_ = nullptr;
    item.mask_bit = mask_bit;
    item.kv_base = kv_base;
    item.q_begin = row;
    item.q_len = tokens;
    item.row_begin = 0;
    item.kv_head = head;
    item.kv_begin = key_begin;
    item.kv_end = key_end;
    item.q_position = q_position;
    item.kv_position = kv_position;
    item.flags = flags;
    item.state = state;
    item.kv_heads = heads;
    item.mask_step = mask_step;
    return item;
  }

  // Some steps of one element, tile by tile.
  void write_element(const WorkUnit& unit, int32_t u, int32_t head, int32_t from, int32_t to) {
    int32_t state = -1;
    if (split_ != split_end_ && split_->unit == u && split_->head == head) {
      state = split_->first_state + piece_++ * unit.tokens;
      if (to == unit.steps) {
        ++split_;
        piece_ = 0;
      }
    }
    for (int32_t tile = 0; tile < tiles_; ++tile) {
      rk_work_item& item = write_item(unit, head, 1, state);
      item.row_begin = tile * rows_;
      item.kv_begin = from == 0 ? unit.key_begin : unit.key_begin + static_cast<int32_t>(from * keys_);
      item.kv_end = to == unit.steps ? unit.key_end : unit.key_begin + static_cast<int32_t>(to * keys_);
    }
  }

  const rk_work_planner& plan_;
  const WorkShare& share_;
  const int64_t keys_, tiles_;
  const int32_t rows_;
  rk_work_item* const own_; // of block 0
  rk_work_item* rest_;
  rk_work_item* next_ = nullptr; // of a block that has no item yet
  int32_t* const first_;         // [blocks + 1], of each block's others, counted from own_
  const WorkSplit *split_ = nullptr, *split_end_ = nullptr;
  int32_t piece_ = 0;
};

template <class T> void copy_out(char* to, const Array<T>& from) {
  if (from.size() > 0)
    memcpy(to, from.data(), static_cast<size_t>(from.size()) * sizeof(T));
}

} // namespace
} // namespace rk

bool rk_work_planner::failed() const {
  bool any = tree.nodes.failed() || tree.levels.failed() || tree.row_position.failed() || units.failed() ||
             splits.failed() || cover.failed() || cover_first.failed() || cover_units.failed() ||
             merges.failed() || pieces.failed() || by_cost.failed() || loads.failed() || slots.failed() ||
             heap.failed() || owners.failed() || homes.failed();
  for (const rk::WorkShare& share : shares)
    any |= share.order.failed() || share.begin.failed() || share.other.failed() || share.dealt.failed() ||
           share.dealt_first.failed();
  return any;
}

extern "C" {

void rk_work_struct_sizes(int64_t* sizes) {
  sizes[0] = sizeof(rk_work_args);
  sizes[1] = sizeof(rk_work_facts);
  sizes[2] = sizeof(rk_work_item);
  sizes[3] = sizeof(rk_work_merge);
}

rk_work_planner* rk_work_create(void) {
  void* memory = calloc(1, sizeof(rk_work_planner));
  return memory == nullptr ? nullptr : new (memory) rk_work_planner();
}

void rk_work_free(rk_work_planner* planner) {
  if (planner == nullptr)
    return;
  planner->~rk_work_planner();
  free(planner);
}

int32_t rk_work_plan(rk_work_planner* planner, const rk_work_args* args, rk_work_facts* facts) {
  if (!rk::is_sane(*args))
    return RK_BAD_ARGUMENT;
  if (const rk_status bad = rk::build(*args, planner->tree))
    return bad;
  rk::start(*planner, *args);
  if (const rk_status bad = rk::list_units(*planner))
    return bad;
  rk::find_cover(*planner);
  if (planner->failed())
    return RK_NO_MEMORY;
  for (int launch = 0; launch < rk::kLaunches; ++launch)
    rk::balance(*planner, launch);
  rk::number_states(*planner);
  if (args->float_limit >= 0 && args->graph == 0)
    rk::fit_states(*planner);
  if (planner->num_states > INT32_MAX)
    return RK_TOO_LONG;
  rk::list_merges(*planner);
  if (planner->failed())
    return RK_NO_MEMORY;
  if (const rk_status bad = rk::lay_out(*planner))
    return bad;
  *facts = planner->facts;
  return RK_OK;
}

int32_t rk_work_write(const rk_work_planner* planner, void* to) {
  const rk_work_facts& f = planner->facts;
  char* out = static_cast<char*>(to);
  rk_work_item* items = reinterpret_cast<rk_work_item*>(out + f.items);
  rk_work_item *own = items, *rest = items;
  for (int launch = 0; launch < rk::kLaunches; ++launch)
    rest += f.grid[launch];
  const rk::WorkSplit* split = planner->splits.begin();
  for (int launch = 0; launch < rk::kLaunches; ++launch) {
    int32_t* first = reinterpret_cast<int32_t*>(out + f.first_item[launch]);
    rest = rk::Writer(*planner, launch, own, rest, first).write(split);
    own += f.grid[launch];
  }
  const int32_t count[4] = {static_cast<int32_t>(f.num_merges), 0, 0, 0};
  memcpy(out + f.merge_count, count, sizeof count);
  rk::copy_out(out + f.merges, planner->merges);
  rk::copy_out(out + f.pieces, planner->pieces);
  if (f.positions >= 0)
    rk::copy_out(out + f.positions, planner->tree.row_position);
  const char* end = reinterpret_cast<const char*>(rest);
  return end == out + f.bytes ? RK_OK : RK_BAD_ARGUMENT;
}

} // extern "C"

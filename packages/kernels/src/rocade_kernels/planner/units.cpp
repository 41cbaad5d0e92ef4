// Cuts the requests of all levels into units, and decides which shape of the kernel takes them.
#include "work_planner.hpp"

namespace rk {
namespace {

// Counts are below 2^31, and division of 32 bits takes half the time.
int64_t parts(int64_t count, int64_t size) {
  return static_cast<uint32_t>(count + size - 1) / static_cast<uint32_t>(size);
}
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Global positions of some rows.
struct Positions {
  int32_t first, low, high;
  bool affine; // consecutive
};

class Lister {
public:
  explicit Lister(rk_work_planner& plan)
      : plan_(plan), args_(plan.args),
        first_leaf_(plan.tree.nodes.size() - args_.levels[args_.num_levels - 1].batch) {}

  void list() {
    choose_shapes();
    int32_t n = 0;
    for (const Node& node : plan_.tree.nodes) {
      if (is_listed(node))
        add_node(node, n);
      ++n;
    }
    for (int launch = 0; launch < kLaunches; ++launch) {
      WorkShare& share = plan_.shares[launch];
      const rk_work_shape& shape = plan_.shape_of(launch);
      const double steps = static_cast<double>(share.steps), units = static_cast<double>(share.order.size());
      share.total = static_cast<double>(plan_.heads * plan_.tiles[launch % kShapes]) *
                    (units * shape.item_ns + steps * shape.step_ns);
    }
  }

private:
  bool is_listed(const Node& node) const {
    return node.row_begin < node.row_end && (args_.only_level < 0 || node.level == args_.only_level);
  }

  // What a node costs in one shape, roughly: on average causal hides half of the queries' own keys.
  double node_ns(const Node& node, int shape) const {
    const int64_t rows = node.row_end - node.row_begin;
    double keys = node.kv_len;
    if (args_.mask == RK_MASK_CAUSAL && &node >= plan_.tree.nodes.data() + first_leaf_)
      keys -= 0.5 * static_cast<double>(smaller(rows, node.kv_len));
    const double window = static_cast<double>(args_.window_left + plan_.tokens[shape]);
    if (args_.window_left >= 0 && window < keys)
      keys = window;
    const rk_work_shape& s = args_.shapes[shape];
    const double tiles = static_cast<double>(parts(rows, plan_.tokens[shape]) * plan_.tiles[shape]);
    return tiles * (s.item_ns + s.step_ns * (keys / static_cast<double>(s.keys) + 0.5));
  }

  bool has_few(const Node& node) const {
    return (node.row_end - node.row_begin) * plan_.group <= args_.shapes[kFew].rows;
  }

  int best_shape(const Node& node) const {
    return has_few(node) || node_ns(node, kFew) < node_ns(node, kMany) ? kFew : kMany;
  }

  // Every node in the shape that is best for it, in two launches, or all in one shape. A plan that must not
  // depend on the batch always takes the first.
  void choose_shapes() {
    bool all_few = true;
    for (const Node& node : plan_.tree.nodes)
      all_few &= has_few(node);
    one_shape_ = all_few ? kFew : -1;
    if (all_few || !plan_.free_to_cut())
      return;
    double all[kShapes] = {0, 0}, best[kShapes] = {0, 0};
    for (const Node& node : plan_.tree.nodes) {
      if (!is_listed(node))
        continue;
      const double costs[kShapes] = {node_ns(node, kFew), node_ns(node, kMany)};
      const int shape = best_shape(node);
      best[shape] += costs[shape];
      for (int s = 0; s < kShapes; ++s)
        all[s] += costs[s];
    }
    if (best[kFew] == 0 || best[kMany] == 0)
      return;
    double least = args_.launch_ns;
    for (int s = 0; s < kShapes; ++s)
      least += share(best[s], s);
    for (int s = 0; s < kShapes; ++s)
      if (share(all[s], s) < least) {
        least = share(all[s], s);
        one_shape_ = s;
      }
  }

  double share(double ns, int shape) const {
    return ns * static_cast<double>(plan_.heads) / static_cast<double>(args_.shapes[shape].blocks);
  }

  void add_node(const Node& node, int32_t n) {
    const int shape = one_shape_ >= 0 ? one_shape_ : best_shape(node);
    const int64_t step = plan_.tokens[shape];
    for (int64_t row = node.row_begin; row < node.row_end; row += step)
      add_unit(node, n, shape, static_cast<int32_t>(row),
               static_cast<int32_t>(smaller(step, node.row_end - row)));
  }

  Positions positions_of(int32_t row, int32_t tokens, bool leaf) const {
    const Array<int32_t>& at = plan_.tree.row_position;
    if (leaf)
      return {at[row], at[row], at[row + tokens - 1], true};
    Positions found = {at[row], at[row], at[row], true};
    for (int32_t i = 1; i < tokens; ++i) {
      const int32_t p = at[row + i];
      found.low = p < found.low ? p : found.low;
      found.high = p > found.high ? p : found.high;
      found.affine &= p == found.first + i;
    }
    return found;
  }

  // Keys that mask and window hide from every row are left out. Rows of the last level, or the only one, keep
  // a unit even without keys: somebody must store their results.
  void add_unit(const Node& node, int32_t n, int shape, int32_t row, int32_t tokens) {
    const bool leaf = n >= first_leaf_;
    const bool causal = args_.mask == RK_MASK_CAUSAL;
    const Positions at = positions_of(row, tokens, leaf);
    int64_t begin = 0, end = node.kv_len;
    if (args_.window_left >= 0)
      begin = larger(begin, int64_t{at.low} - args_.window_left - node.offset);
    if (causal)
      end = smaller(end, int64_t{at.high} + 1 - node.offset);
    if (begin >= end) {
      if (!leaf && args_.only_level < 0)
        return;
      begin = end = 0;
    }
    const bool right = causal && at.low < node.offset + end - 1; // hides keys of the range from some row
    const bool left = args_.window_left >= 0 && at.high - args_.window_left > node.offset + begin;
    uint32_t flags = right ? kItemCausal : 0;
    int32_t first = at.first;
    if (!at.affine && (right || left)) {
      flags |= kItemPositions;
      plan_.positions = true;
    } else if (!at.affine) {
      first = at.high - (tokens - 1); // any that hide nothing
    }
    const int64_t split = args_.fixed_split_size; // on multiples of it in the node, whatever a window leaves
    do {
      const int64_t next = split > 0 ? smaller(end, (begin / split + 1) * split) : end;
      WorkUnit* unit = plan_.units.add();
      if (unit == nullptr)
        return;
      describe(*unit, node, n, shape, row, tokens, first, flags);
      list_unit(*unit, begin, next);
      begin = next;
    } while (begin < end && plan_.units.size() <= INT32_MAX / 2);
  }

  // Field by field into place: see Array::add.
  void describe(WorkUnit& unit, const Node& node, int32_t n, int shape, int32_t row, int32_t tokens,
                int32_t position, uint32_t flags) const {
    unit.node = n;
    unit.row = row;
    unit.tokens = tokens;
    unit.q_position = position;
    unit.kv_position = node.offset;
    unit.flags = flags;
    unit.shape = shape;
    unit.launch = shape + (args_.levels[node.level].page_size > 0 ? 0 : kShapes);
    unit.alone = 1;
    unit.first_split = -1;
  }

  void list_unit(WorkUnit& unit, int64_t begin, int64_t end) {
    WorkShare& share = plan_.shares[unit.launch];
    const int64_t steps = parts(end - begin, args_.shapes[unit.shape].keys);
    unit.key_begin = static_cast<int32_t>(begin);
    unit.key_end = static_cast<int32_t>(end);
    unit.steps = static_cast<int32_t>(steps);
    share.order.push(static_cast<int32_t>(plan_.units.size()) - 1);
    share.steps += steps; // in whole numbers: a sum of times would be a chain of slow additions
  }

  rk_work_planner& plan_;
  const rk_work_args& args_;
  int64_t first_leaf_;
  int one_shape_ = -1;
};

} // namespace

rk_status list_units(rk_work_planner& plan) {
  Lister(plan).list();
  return plan.units.size() > INT32_MAX / 2 ? RK_TOO_LONG : RK_OK;
}

} // namespace rk

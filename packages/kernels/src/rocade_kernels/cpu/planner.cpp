// The planner: decides which KV ranges are shared, cuts rows and keys into units, and lists who merges what.
//
// A row's keys are one sequence, held by a chain of nodes. A node that is shared becomes units of its own,
// for all its rows at once; every other key is visited by units of the row's leaf. So without sharing the
// work list depends on the global sequence alone, and equals that of the same requests without levels.
#include "planner.hpp"

#include "cost.hpp"

namespace rk {
namespace {

// From this many rows of a KV head (query rows x group) on, packing a tile pays.
constexpr int64_t kPackedRows = 48;
// Rows of a KV head in a unit: packed ones keep their state and a tile in the second-level cache.
constexpr int64_t kMaxPackedRows = 192;
// Items a thread gets at least when the work allows: its share of waiting at the end is then small.
constexpr int64_t kItemsPerThread = 6;
// An item that costs less (nanoseconds) is not worth cutting: waking a thread takes as long.
constexpr double kMinItemCost = 10000.0;
constexpr int64_t kMaxUnits = 1 << 21;
// A piece of a split range has at least this many keys, and whole steps of this many.
constexpr int32_t kMinSplit = 256;
constexpr int32_t kSplitStep = 128;
// Costs are sorted into classes of powers of two, the dearest first.
constexpr int kCostClasses = 64;

class Planner {
public:
  Planner(const rk_plan_args& args, rk_plan& plan)
      : args_(args), plan_(plan), cost_(plan.shape, args.threads),
        first_leaf_(plan.nodes.size() - args.levels[args.num_levels - 1].batch),
        most_per_unit_(plan.shape.group < kMaxPackedRows ? kMaxPackedRows / plan.shape.group : 1),
        fixed_(args.fixed_split_size > 0 || args.disable_split != 0) {}

  rk_status make() {
    if (!shared_.resize_zeroed(plan_.nodes.size()))
      return RK_NO_MEMORY;
    decide_sharing();
    list_units();
    split_units();
    if (plan_.units.size() > kMaxUnits)
      return RK_TOO_LONG;
    if (num_shared_ > 0 || split_ || rows_covered_ != plan_.shape.rows)
      assign_partial_rows();
    order_units();
    list_items();
    list_merges();
    const bool failed = plan_.units.failed() || costs_.failed() || order_.failed() || pieces_.failed() ||
                        plan_.items.failed() || plan_.merges.failed() || plan_.parts.failed() ||
                        plan_.slopes.failed() || plan_.levels.failed() || plan_.waits.failed() ||
                        plan_.ready.failed() || no_memory_;
    return failed ? RK_NO_MEMORY : RK_OK;
  }

  // Of any unit in place (0) or packed (1).
  int64_t most_rows(int kind) const { return most_rows_[kind]; }
  int64_t shared_nodes() const { return num_shared_; }

private:
  bool packed(int64_t rows) const { return rows * plan_.shape.group >= kPackedRows; }

  // Whether the last-level cache holds K and V of so many keys; then reading them again is cheap.
  bool fits_cache(double keys) const {
    const double a_key = cost_.elements * cost_.element_size * static_cast<double>(plan_.shape.kv_heads);
    return keys * a_key < Cost::kCacheBytes;
  }

  // ---- sharing

  // A node is shared when its rows together cost less than its leaves one by one, the merge included.
  // Batch-invariant plans never share: the choice depends on the batch.
  void decide_sharing() {
    if (args_.share == 0 || fixed_ || args_.num_levels == 1)
      return;
    int64_t leaf = first_leaf_;
    for (int64_t n = 0; n < first_leaf_; ++n) {
      const Node& node = plan_.nodes[n];
      if (n > 0 && node.level != plan_.nodes[n - 1].level)
        leaf = first_leaf_;
      double apart = 0;
      int64_t leaves = 0;
      for (; leaf < plan_.nodes.size() && plan_.nodes[leaf].row_end <= node.row_end; ++leaf) {
        const int64_t rows = plan_.nodes[leaf].row_end - plan_.nodes[leaf].row_begin;
        if (rows == 0 || plan_.nodes[leaf].row_begin < node.row_begin)
          continue;
        apart += rows_cost(rows, fits_cache(node.kv_len)) * node.kv_len;
        ++leaves;
      }
      if (leaves == 0 || node.kv_len == 0)
        continue;
      shared_[n] = args_.share > 0 || together(node) < Cost::kSharingPays * apart;
      num_shared_ += shared_[n];
    }
  }

  // One key of all KV heads against all rows of a request, cut into blocks as the units will be.
  double rows_cost(int64_t rows, bool resident) const {
    const int64_t block = rows_per_unit(rows);
    const int64_t full = rows / block, rest = rows % block;
    double cost = static_cast<double>(full) * cost_.key(static_cast<double>(block), packed(block), resident);
    if (rest > 0)
      cost += cost_.key(static_cast<double>(rest), packed(rest), resident);
    return cost * static_cast<double>(plan_.shape.kv_heads);
  }

  // The rows' states go through memory twice more: once of the shared part, once of what was whole before.
  double together(const Node& node) const {
    const int64_t rows = node.row_end - node.row_begin;
    return rows_cost(rows, false) * node.kv_len + 2 * cost_.partial(static_cast<double>(rows), plan_.shape) +
           Cost::kMargin;
  }

  // ---- units

  // All rows of a request when it is short; otherwise blocks of nearly equal size.
  int64_t rows_per_unit(int64_t rows) const {
    if (rows <= most_per_unit_)
      return rows;
    const int64_t blocks = (rows + most_per_unit_ - 1) / most_per_unit_;
    return (rows + blocks - 1) / blocks;
  }

  void list_units() {
    plan_.units.reserve(plan_.nodes.size() - first_leaf_);
    costs_.reserve(plan_.nodes.size() - first_leaf_);
    for (int64_t n = 0; n < first_leaf_; ++n)
      if (shared_[n])
        add_blocks(n, plan_.nodes[n].offset, plan_.nodes[n].offset + plan_.nodes[n].kv_len);
    for (int64_t n = first_leaf_; n < plan_.nodes.size(); ++n)
      add_leaf(n);
  }

  // The keys of a leaf's chain but for the shared nodes, as few contiguous ranges.
  void add_leaf(int64_t leaf) {
    const Node& node = plan_.nodes[leaf];
    int32_t end = node.offset + node.kv_len;
    if (num_shared_ > 0)
      for (int32_t n = node.parent; n >= 0; n = plan_.nodes[n].parent) {
        if (!shared_[n])
          continue;
        add_blocks(leaf, plan_.nodes[n].offset + plan_.nodes[n].kv_len, end);
        end = plan_.nodes[n].offset;
      }
    add_blocks(leaf, 0, end);
  }

  void add_blocks(int64_t n, int32_t key_begin, int32_t key_end) {
    const Node& node = plan_.nodes[n];
    if (node.row_begin == node.row_end || key_begin >= key_end)
      return;
    const int32_t block = static_cast<int32_t>(rows_per_unit(node.row_end - node.row_begin));
    for (int32_t row = node.row_begin; row < node.row_end; row += block) {
      const int32_t row_end = row + block < node.row_end ? row + block : node.row_end;
      add_unit(n, row, row_end, key_begin, key_end);
    }
  }

  // Keys that mask and window hide from every row of the block are left out.
  void add_unit(int64_t n, int32_t row, int32_t row_end, int32_t key_begin, int32_t key_end) {
    if (plan_.shape.window_left >= 0 || plan_.shape.mask == RK_MASK_CAUSAL)
      cut_to_visible(row, row_end, key_begin, key_end);
    if (key_begin >= key_end)
      return;
    const bool pack = packed(row_end - row);
    const int32_t heads = pack ? 1 : static_cast<int32_t>(plan_.shape.kv_heads);
    const double cost = key_cost(row_end - row, pack) * heads * (key_end - key_begin);
    if (Unit* unit = plan_.units.add())
      *unit = {row, row_end, key_begin, key_end, static_cast<int32_t>(n), heads, pack, 0, -1};
    costs_.push(cost);
    total_ += pack ? cost * static_cast<double>(plan_.shape.kv_heads) : cost;
    dearest_ = cost > dearest_ ? cost : dearest_;
    rows_covered_ += row_end - row;
    keys_in_place_ += pack ? INT32_MAX : key_end - key_begin; // packed units are cut by head already
    most_rows_[pack] = row_end - row > most_rows_[pack] ? row_end - row : most_rows_[pack];
  }

  void cut_to_visible(int32_t row, int32_t row_end, int32_t& key_begin, int32_t& key_end) const {
    int64_t first = INT32_MAX, last = INT32_MIN;
    for (int32_t r = row; r < row_end; ++r) {
      first = plan_.row_position[r] < first ? plan_.row_position[r] : first;
      last = plan_.row_position[r] > last ? plan_.row_position[r] : last;
    }
    if (plan_.shape.window_left >= 0 && first - plan_.shape.window_left > key_begin)
      key_begin = static_cast<int32_t>(
          first - plan_.shape.window_left < key_end ? first - plan_.shape.window_left : key_end);
    if (plan_.shape.mask == RK_MASK_CAUSAL && last + 1 < key_end)
      key_end = static_cast<int32_t>(last + 1);
  }

  // One key of one KV head; the last answer is kept, since most units have the same number of rows.
  double key_cost(int32_t rows, bool pack) {
    if (rows != asked_rows_) {
      asked_rows_ = rows;
      asked_cost_ = cost_.key(rows, pack, false);
    }
    return asked_cost_;
  }

  // ---- splits

  // Items are cut until none costs more than a thread's share over kItemsPerThread: by KV head, which needs
  // no merge and changes no bit, and by keys where the caller leaves that to the planner.
  void split_units() {
    const int64_t threads = args_.threads < 1 ? 1 : args_.threads;
    const double share = total_ / static_cast<double>(threads * kItemsPerThread);
    const double most = threads == 1 ? dearest_ : share > kMinItemCost ? share : kMinItemCost;
    if (args_.fixed_split_size == 0 && dearest_ <= most)
      return;
    only_by_head_ = args_.disable_split != 0 || heads_suffice(threads);
    Array<Unit> whole;
    Array<double> whole_costs;
    whole.swap(plan_.units);
    whole_costs.swap(costs_);
    plan_.units.reserve(whole.size() + threads * kItemsPerThread);
    costs_.reserve(whole.size() + threads * kItemsPerThread);
    for (int64_t i = 0; i < whole.size() && plan_.units.size() <= kMaxUnits; ++i)
      split_unit(whole[i], whole_costs[i], most);
    split_ = plan_.units.size() != whole.size();
  }

  // Few keys of enough KV heads: cut by head alone they give every thread its share, with nothing to merge.
  bool heads_suffice(int64_t threads) const {
    const double a_key = cost_.elements * cost_.element_size * static_cast<double>(plan_.shape.kv_heads);
    return static_cast<double>(keys_in_place_) * a_key <= Cost::kHeadsApartBytes &&
           plan_.units.size() * plan_.shape.kv_heads >= 2 * threads;
  }

  void split_unit(Unit unit, double cost, double most) {
    const int32_t keys = unit.key_end - unit.key_begin;
    const double wanted = cost / most;
    int64_t step = keys;
    if (args_.fixed_split_size > 0)
      step = args_.fixed_split_size;
    else if (!only_by_head_ && wanted > 1.0 && keys >= 2 * kMinSplit)
      step = split_step(keys, wanted);
    const double left = wanted * static_cast<double>(step) / keys; // pieces still wanted of each piece
    if (left > 1.0 && unit.heads > 1) {
      const int32_t pieces = left < unit.heads ? static_cast<int32_t>(left) + 1 : unit.heads;
      cost /= unit.heads;
      unit.heads = (unit.heads + pieces - 1) / pieces;
      cost *= unit.heads;
    }
    push_pieces(unit, cost, step);
  }

  // Fixed splits lie on multiples of their size in the sequence, whatever the window leaves of it.
  void push_pieces(Unit unit, double cost, int64_t step) {
    const int64_t origin = args_.fixed_split_size > 0 ? 0 : unit.key_begin;
    const int32_t keys = unit.key_end - unit.key_begin, end = unit.key_end;
    while (unit.key_begin < end && plan_.units.size() <= kMaxUnits) {
      const int64_t next = origin + ((unit.key_begin - origin) / step + 1) * step;
      unit.key_end = next < end ? static_cast<int32_t>(next) : end;
      plan_.units.push(unit);
      costs_.push(cost * (unit.key_end - unit.key_begin) / keys);
      unit.key_begin = unit.key_end;
    }
  }

  int32_t split_step(int32_t keys, double wanted) const {
    const int32_t most = keys / kMinSplit;
    int32_t pieces = wanted >= most ? most : static_cast<int32_t>(wanted) + 1;
    if (pieces > most)
      pieces = most;
    const int32_t step = (keys + pieces - 1) / pieces;
    return (step + kSplitStep - 1) / kSplitStep * kSplitStep;
  }

  // ---- partial rows and merges

  // A unit writes the result itself when no other unit has any of its rows.
  void assign_partial_rows() {
    pieces_.resize_zeroed(plan_.shape.rows);
    if (pieces_.failed())
      return;
    for (const Unit& unit : plan_.units)
      for (int32_t row = unit.row_begin; row < unit.row_end; ++row)
        ++pieces_[row];
    for (Unit& unit : plan_.units) {
      bool alone = true;
      for (int32_t row = unit.row_begin; row < unit.row_end; ++row)
        alone &= pieces_[row] == 1;
      if (alone)
        continue;
      unit.part = plan_.partial_rows;
      plan_.partial_rows += unit.row_end - unit.row_begin;
    }
  }

  // Rows that no unit finishes, each with its partial rows in the order of the work list before it was
  // sorted: shared nodes first, then ascending pieces. The order is fixed, so the sums are.
  void list_merges() {
    Array<int32_t> slot; // where the row's next partial row goes
    if (pieces_.size() == 0)
      return;
    if (!slot.resize(plan_.shape.rows) || !plan_.parts.resize(plan_.partial_rows) || !number_merges(slot)) {
      no_memory_ = true;
      return;
    }
    for (int64_t i = 0; i < plan_.units.size(); ++i) {
      const Unit& unit = plan_.units[order_.size() > 0 ? order_[i] : i];
      for (int32_t row = unit.row_begin; unit.part >= 0 && row < unit.row_end; ++row)
        plan_.parts[slot[row]++] = unit.part + row - unit.row_begin;
    }
    count_waits();
  }

  // A merge for each row that no unit finishes, and in each unit the number of its first row's. The rows of
  // a unit that has partial rows all have merges.
  bool number_merges(Array<int32_t>& slot) {
    Array<uint8_t> finished;
    Array<int32_t> number;
    if (!finished.resize_zeroed(plan_.shape.rows) || !number.resize(plan_.shape.rows))
      return false;
    for (const Unit& unit : plan_.units)
      if (unit.part < 0)
        memset(finished.data() + unit.row_begin, 1, static_cast<size_t>(unit.row_end - unit.row_begin));
    int32_t at = 0;
    for (int32_t row = 0; row < plan_.shape.rows; ++row) {
      slot[row] = at;
      number[row] = static_cast<int32_t>(plan_.merges.size());
      if (finished[row])
        continue;
      plan_.merges.push({row, at, at + pieces_[row]});
      at += pieces_[row];
    }
    for (Unit& unit : plan_.units)
      unit.merge = number[unit.row_begin];
    return true;
  }

  void count_waits() {
    if (!plan_.waits.resize_zeroed((plan_.merges.size() + kMergeRows - 1) / kMergeRows))
      return;
    for (const Item& item : plan_.items) {
      const Unit& unit = plan_.units[item.unit];
      const int64_t last = unit.merge + (unit.row_end - unit.row_begin) - 1;
      for (int64_t group = unit.merge / kMergeRows; unit.part >= 0 && group <= last / kMergeRows; ++group)
        ++plan_.waits[group];
    }
    for (int32_t group = 0; group < plan_.waits.size(); ++group)
      if (plan_.waits[group] == 0)
        plan_.ready.push(group);
  }

  // ---- order

  static int cost_class(double cost) {
    uint64_t bits;
    memcpy(&bits, &cost, sizeof bits);
    const int exponent = static_cast<int>(bits >> 52) - 1023; // costs are positive
    return exponent < 0 ? 0 : exponent >= kCostClasses ? kCostClasses - 1 : exponent;
  }

  // Dearest class first, so that threads end together; within a class the order stays. Remembers where each
  // unit went, unless all stay.
  void order_units() {
    const int64_t n = plan_.units.size();
    int64_t begin[kCostClasses + 1] = {};
    for (const double cost : costs_)
      ++begin[kCostClasses - cost_class(cost)];
    for (int c = 0; c <= kCostClasses; ++c)
      if (begin[c] == n)
        return;
    for (int c = 0; c < kCostClasses; ++c)
      begin[c + 1] += begin[c];
    Array<Unit> sorted;
    if (!sorted.resize(n) || !order_.resize(n))
      return;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = begin[kCostClasses - 1 - cost_class(costs_[i])]++;
      sorted[to] = plan_.units[i];
      order_[i] = static_cast<int32_t>(to);
    }
    sorted.swap(plan_.units);
  }

  void list_items() {
    plan_.items.reserve(plan_.units.size());
    for (int32_t i = 0; i < plan_.units.size(); ++i)
      for (int32_t head = 0; head < plan_.shape.kv_heads; head += plan_.units[i].heads)
        plan_.items.push({i, head});
  }

  const rk_plan_args& args_;
  rk_plan& plan_;
  Cost cost_;
  int64_t first_leaf_;
  int64_t most_per_unit_; // query rows
  bool fixed_;
  int64_t num_shared_ = 0;
  bool split_ = false; // some unit was cut by keys
  bool only_by_head_ = false;
  bool no_memory_ = false;    // for an array that lives in one function
  int64_t keys_in_place_ = 0; // of all units before they were split; beyond all bounds if one is packed
  int64_t rows_covered_ = 0;  // rows of all units before they were split
  double total_ = 0, dearest_ = 0;
  int64_t most_rows_[2] = {0, 0};
  int32_t asked_rows_ = -1;
  double asked_cost_ = 0;
  Array<uint8_t> shared_; // by node
  Array<double> costs_;   // of one item of each unit, nanoseconds
  Array<int32_t> pieces_; // units a row is in; empty when every row has exactly one
  Array<int32_t> order_;  // where each unit went; empty when none moved
};

} // namespace

rk_status make_plan(const rk_plan_args& args, rk_plan& plan) {
  if (const rk_status bad = build_tree(args, plan))
    return bad;
  Planner planner(args, plan);
  if (const rk_status bad = planner.make())
    return bad;
  plan.shared_nodes = planner.shared_nodes();
  plan.isa = args.isa;
  plan.scratch_bytes =
      isa_kernels(plan.isa).scratch_bytes(plan.shape, planner.most_rows(0), planner.most_rows(1));
  return RK_OK;
}

} // namespace rk

// Deals whole elements to blocks, the longest first, each to the compute unit that has least.
//
// Blocks of one compute unit share its speed, so that a long element and a short one side by side end sooner
// than two long ones. Neighbouring elements end up in different blocks.
#include "work_planner.hpp"

namespace rk {
namespace {

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int by_value(const void* a, const void* b) {
  const int64_t x = *static_cast<const int64_t*>(a), y = *static_cast<const int64_t*>(b);
  return x < y ? -1 : x > y;
}

class Dealer {
public:
  Dealer(rk_work_planner& plan, int launch)
      : plan_(plan), share_(plan.shares[launch]), shape_(plan.shape_of(launch)),
        shape_number_(launch % kShapes), elements_(share_.order.size() * plan.heads),
        units_(smaller(shape_.blocks / shape_.unit_blocks, elements_)) {}

  // Returns when the last compute unit ends; infinity where elements are not dealt.
  double deal() {
    if (!plan_.one_level() || plan_.args.fixed_split_size > 0 ||
        elements_ > kMostDealt[shape_number_] * shape_.blocks || !allocate())
      return INFINITY;
    sort();
    choose_units();
    int64_t best = 0;
    double end = INFINITY;
    for (int64_t slots = shape_.unit_blocks; slots > 0; --slots) {
      const double ends = fill(slots);
      if (ends <= end)
        end = ends, best = slots;
    }
    fill(best);
    group_by_block(units_ * best);
    return end;
  }

private:
  bool allocate() {
    return plan_.by_cost.resize(share_.order.size()) && plan_.loads.resize_zeroed(units_) &&
           plan_.slots.resize(shape_.blocks) && plan_.heap.resize(units_) && plan_.owners.resize(elements_) &&
           plan_.homes.resize(elements_) && share_.dealt.resize(elements_);
  }

  // Of the rank-th unit by cost. Elements are its heads, rank after rank.
  double cost(int64_t rank) const { return plan_.element_ns(plan_.units[unit_index(rank)]); }
  int32_t unit_index(int64_t rank) const {
    return share_.order[static_cast<int32_t>(plan_.by_cost[rank] & UINT32_MAX)];
  }

  // f(element, cost) for all elements.
  template <class F> void each_element(F&& f) {
    int64_t element = 0;
    for (int64_t rank = 0; rank < plan_.by_cost.size(); ++rank) {
      const double ns = cost(rank);
      for (int64_t head = 0; head < plan_.heads; ++head)
        f(element++, ns);
    }
  }

  // Elements by falling costs, in their order where costs are equal: heads of one unit are neighbours.
  void sort() {
    Array<int64_t>& keys = plan_.by_cost;
    for (int64_t i = 0; i < keys.size(); ++i) {
      const int64_t steps = plan_.units[share_.order[i]].steps;
      keys[i] = (int64_t{INT32_MAX} - steps) << 32 | i;
    }
    qsort(keys.data(), static_cast<size_t>(keys.size()), sizeof(int64_t), by_value);
  }

  void choose_units() {
    for (int64_t unit = 0; unit < units_; ++unit)
      plan_.heap[unit] = static_cast<int32_t>(unit);
    each_element([&](int64_t element, double ns) {
      const int32_t unit = plan_.owners[element] = plan_.heap[0];
      plan_.loads[unit] += ns;
      sink();
    });
  }

  bool before(int32_t a, int32_t b) const {
    const double x = plan_.loads[a], y = plan_.loads[b];
    return x < y || (x == y && a < b);
  }

  // The root of the heap grew.
  void sink() {
    Array<int32_t>& heap = plan_.heap;
    const int32_t unit = heap[0];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < units_; at = child) {
      if (child + 1 < units_ && before(heap[child + 1], heap[child]))
        ++child;
      if (!before(heap[child], unit))
        break;
      heap[at] = heap[child];
    }
    heap[at] = unit;
  }

  // Gives each element to the least loaded of `slots` blocks of its unit; returns when the last unit ends.
  double fill(int64_t slots) {
    Array<double>& loads = plan_.slots; // block after block; those of a unit are units_ apart
    for (double& load : loads)
      load = 0;
    each_element([&](int64_t element, double ns) {
      int64_t home = plan_.owners[element];
      for (int64_t other = home + units_; other < units_ * slots; other += units_)
        if (loads[other] < loads[home])
          home = other;
      loads[home] += ns;
      plan_.homes[element] = static_cast<int32_t>(home);
    });
    double end = 0;
    for (int64_t unit = 0; unit < units_; ++unit) {
      const double ends = unit_end(unit, slots);
      end = ends > end ? ends : end;
    }
    return end;
  }

  // Costs are those of a block while all blocks of its compute unit run.
  double unit_end(int64_t unit, int64_t slots) const {
    double end = 0, from = 0; // so far; work that blocks that still run have done
    for (;;) {
      double next = INFINITY; // the least load above `from`
      int64_t running = 0;
      for (int64_t block = unit; block < units_ * slots; block += units_) {
        const double load = plan_.slots[block];
        running += load > from;
        next = load > from && load < next ? load : next;
      }
      if (running == 0)
        return end;
      end += (next - from) / block_speed(shape_, running);
      from = next;
    }
  }

  void group_by_block(int64_t blocks) {
    Array<int32_t>& first = share_.dealt_first;
    if (!first.resize_zeroed(blocks + 1))
      return;
    for (int64_t element = 0; element < elements_; ++element)
      ++first[plan_.homes[element] + 1];
    for (int64_t block = 0; block < blocks; ++block)
      first[block + 1] += first[block];
    // From the back, so that each block's end becomes its beginning.
    int64_t element = elements_;
    for (int64_t rank = plan_.by_cost.size() - 1; rank >= 0; --rank)
      for (int64_t head = plan_.heads - 1; head >= 0; --head) {
        const int32_t place = --first[plan_.homes[--element] + 1];
        share_.dealt[place] = {unit_index(rank), static_cast<int32_t>(head)};
      }
    for (int64_t block = 0; block < blocks; ++block)
      first[block] = first[block + 1];
    first[blocks] = static_cast<int32_t>(elements_);
  }

  rk_work_planner& plan_;
  WorkShare& share_;
  const rk_work_shape& shape_;
  const int shape_number_;
  const int64_t elements_, units_; // compute units that get any
};

} // namespace

double deal(rk_work_planner& plan, int launch) { return Dealer(plan, launch).deal(); }

} // namespace rk

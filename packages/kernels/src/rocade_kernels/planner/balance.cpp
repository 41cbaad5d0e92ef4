// Shares the elements of one launch out to blocks, so that all of them end together.
//
// The sequence of elements is a line of nanoseconds. Block b begins at b shares of it, moved to the nearest
// end of an element, or to a step within one where elements may be cut.
#include "work_planner.hpp"

namespace rk {
namespace {

// A block has work for so many times what a cut adds, or cuts do not pay.
constexpr double kLeastShare = 2.0;
// Neighbours in the line stay together where no block has more than so many even shares of work: their items
// are fewer, and so is what there is to plan.
constexpr double kEven = 1.02;
// How much faster a block is when others of its compute unit have ended, at most, and what the unit does then
// of all that it can.
constexpr double kAloneSpeed = 1.5, kNotAll = 0.98;

// Towards zero. Costs may be anything: quotients of them need not fit.
int32_t whole(double x) {
  constexpr double kMost = 1 << 30;
  return static_cast<int32_t>(x > kMost ? kMost : x > -kMost ? x : -kMost);
}

class Line {
public:
  Line(const rk_work_planner& plan, const WorkShare& share, int launch)
      : plan_(plan), share_(share), shape_(plan.shape_of(launch)), heads_(static_cast<double>(plan.heads)),
        tiles_(static_cast<double>(plan.tiles[launch % kShapes])) {}

  // Fills `begin` with the places of at most `blocks` blocks, none of them empty, and returns what the
  // dearest block costs.
  double cut(Array<WorkPlace>& begin, int64_t blocks, bool may_cut) {
    const int32_t units = static_cast<int32_t>(share_.order.size());
    const double each = share_.total / static_cast<double>(blocks);
    double dearest = 0, from = 0;
    WorkPlace last = {0, 0, 0};
    int32_t unit = 0;
    double before = 0; // of all units before `unit`
    begin.resize(0);
    begin.push(last);
    for (int64_t b = 1; b <= blocks; ++b) {
      WorkPlace place = {units, 0, 0};
      double at = share_.total;
      if (b < blocks) {
        const double target = each * static_cast<double>(b);
        while (unit < units && before + heads_ * cost(unit) <= target)
          before += heads_ * cost(unit++);
        if (unit < units)
          place = nearest(unit, target - before, may_cut, at = before);
      }
      if (place.unit == last.unit && place.head == last.head && place.step == last.step)
        continue;
      const double extra = (last.step > 0 ? both() : 0) + (place.step > 0 ? piece() : 0);
      dearest = larger(dearest, at - from + extra);
      from = at;
      begin.push(last = place);
    }
    return dearest;
  }

private:
  static double larger(double a, double b) { return a > b ? a : b; }
  double cost(int32_t unit) const { return plan_.element_ns(plan_.units[share_.order[unit]]); }
  double piece() const { return tiles_ * shape_.piece_ns; }
  double both() const { return tiles_ * (shape_.piece_ns + shape_.item_ns); }

  // The place nearest to x nanoseconds into a unit's elements; `at` becomes where that is.
  WorkPlace nearest(int32_t unit, double x, bool may_cut, double& at) const {
    const double each = cost(unit), step = tiles_ * shape_.step_ns;
    const int32_t steps = plan_.units[share_.order[unit]].steps;
    int32_t head = static_cast<int32_t>(x / each);
    head = head < static_cast<int32_t>(plan_.heads) ? head : static_cast<int32_t>(plan_.heads) - 1;
    const double within = x - each * head;
    if (may_cut) {
      const int32_t least = whole(piece() / step) + 1; // what is moved is worth the cut
      const int32_t s = whole((within - tiles_ * shape_.item_ns) / step + 0.5);
      if (s >= least && steps - s >= least) {
        at += each * head + tiles_ * shape_.item_ns + step * s;
        return {unit, head, s};
      }
    }
    if (within > each / 2)
      ++head;
    at += each * head;
    return head == plan_.heads ? WorkPlace{unit + 1, 0, 0} : WorkPlace{unit, head, 0};
  }

  const rk_work_planner& plan_;
  const WorkShare& share_;
  const rk_work_shape& shape_;
  const double heads_, tiles_;
};

bool is_cut(const Array<WorkPlace>& begin) {
  for (const WorkPlace& place : begin)
    if (place.step > 0)
      return true;
  return false;
}

// How fast blocks are when there are so many.
double blocks_speed(const rk_work_shape& shape, int64_t blocks) {
  const int64_t units = shape.blocks / shape.unit_blocks;
  return block_speed(shape, (blocks + units - 1) / units);
}

// One block fewer on each compute unit, if that ends sooner: pieces are fewer then, which counts where all is
// over soon.
int64_t best_blocks(const rk_work_shape& shape, double total, double tiles, int64_t most) {
  const int64_t fewer = shape.blocks / shape.unit_blocks * (shape.unit_blocks - 1);
  if (fewer == 0 || most <= fewer)
    return most;
  const double extra =
      tiles * (2 * shape.piece_ns + shape.item_ns); // of a block that begins and ends in a cut
  const double all = total / static_cast<double>(most) + extra;
  const double some = (total / static_cast<double>(fewer) + extra) / blocks_speed(shape, fewer);
  return some < all ? fewer : most;
}

} // namespace

double block_speed(const rk_work_shape& shape, int64_t running) {
  if (running == shape.unit_blocks)
    return 1;
  const double each = static_cast<double>(shape.unit_blocks) / static_cast<double>(running);
  return each * kNotAll < kAloneSpeed ? each * kNotAll : kAloneSpeed;
}

void balance(rk_work_planner& plan, int launch) {
  WorkShare& share = plan.shares[launch];
  share.cut = false;
  share.begin.resize(0);
  share.dealt.resize(0);
  if (share.order.size() == 0)
    return;
  const rk_work_shape& facts = plan.shape_of(launch);
  Line line(plan, share, launch);
  double whole = line.cut(share.begin, facts.blocks, false);
  const double even = share.total / static_cast<double>(facts.blocks);
  if (whole > even * kEven) {
    const double dealt = deal(plan, launch);
    if (dealt < whole)
      whole = dealt;
    else
      share.dealt.resize(0);
  }
  if (!plan.free_to_cut() || whole <= even + plan.args.launch_ns)
    return;
  const double least =
      kLeastShare * static_cast<double>(plan.tiles[launch % kShapes]) * (facts.item_ns + facts.piece_ns);
  const double worth = share.total / least; // of blocks: may be beyond whole numbers
  int64_t blocks =
      worth < static_cast<double>(share.cut_blocks) ? static_cast<int64_t>(worth) : share.cut_blocks;
  if (blocks <= 1)
    return;
  blocks = best_blocks(facts, share.total, static_cast<double>(plan.tiles[launch % kShapes]), blocks);
  const double speed = blocks_speed(facts, blocks);
  const double apart = line.cut(share.other, blocks, true) / speed;
  if (apart + plan.args.launch_ns < whole && is_cut(share.other)) {
    share.begin.swap(share.other);
    share.dealt.resize(0);
    share.cut = true;
  }
}

} // namespace rk

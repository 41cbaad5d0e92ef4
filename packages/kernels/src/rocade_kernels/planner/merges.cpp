// Which results are partial, where they go, and which rows are merged from them.
#include "work_planner.hpp"

namespace rk {
namespace {

// Rows of one element that is cut: its pieces, in the order of keys.
void merge_split(rk_work_planner& plan, const WorkSplit& split) {
  const WorkUnit& unit = plan.units[split.unit];
  const int32_t most = static_cast<int32_t>(plan.args.merge_rows);
  for (int32_t i = 0; i < unit.tokens; i += most) {
    const int32_t rows = unit.tokens - i < most ? unit.tokens - i : most;
    const int32_t first = static_cast<int32_t>(plan.pieces.size());
    for (int32_t p = 0; p < split.count; ++p)
      plan.pieces.push(split.first_state + p * unit.tokens + i);
    plan.merges.push({unit.row + i, rows, split.head, first, split.count, 0});
  }
}

bool same_cover(const rk_work_planner& plan, int64_t a, int64_t b) {
  const int32_t* first = plan.cover_first.data();
  const int32_t count = first[a + 1] - first[a];
  return first[b + 1] - first[b] == count &&
         memcmp(plan.cover_units.data() + first[a], plan.cover_units.data() + first[b],
                static_cast<size_t>(count) * sizeof(int32_t)) == 0;
}

// Rows [row, row + rows), which the same units cover, for all KV heads.
void merge_covered(rk_work_planner& plan, int32_t row, int32_t rows) {
  for (int32_t head = 0; head < plan.heads; ++head) {
    const int32_t first = static_cast<int32_t>(plan.pieces.size());
    for (int32_t c = plan.cover_first[row]; c < plan.cover_first[row + 1]; ++c) {
      const WorkUnit& unit = plan.units[plan.cover_units[c]];
      const WorkSplit& split = plan.splits[unit.first_split + head];
      for (int32_t p = 0; p < split.count; ++p)
        plan.pieces.push(split.first_state + p * unit.tokens + row - unit.row);
    }
    plan.merges.push({row, rows, head, first, static_cast<int32_t>(plan.pieces.size()) - first, 0});
  }
}

void list_covered(rk_work_planner& plan) {
  const int32_t rows = static_cast<int32_t>(plan.args.num_rows);
  for (int32_t row = 0; row < rows;) {
    int32_t end = row + 1;
    if (plan.units[plan.cover_units[plan.cover_first[row]]].alone) {
      row = end;
      continue;
    }
    while (end < rows && end - row < plan.args.merge_rows && same_cover(plan, row, end))
      ++end;
    merge_covered(plan, row, end - row);
    row = end;
  }
}

int64_t final_items(const rk_work_planner& plan, const WorkShare& share, int64_t tiles) {
  if (tiles > 1)
    return share.order.size() * plan.heads * tiles;
  int64_t items = share.order.size();
  for (const WorkPlace& place : share.begin)
    items += place.head > 0;
  return items;
}

// Returns the items of a unit, tiles apart: neighbouring heads of a block with final results share one.
// `block` moves on to the first that begins behind it.
int64_t number_unit(rk_work_planner& plan, const WorkShare& share, int32_t at, int64_t& block) {
  const int32_t u = share.order[at];
  WorkUnit& unit = plan.units[u];
  const bool apart = plan.tiles[unit.shape] > 1;
  if (unit.alone && (block >= share.begin.size() || share.begin[block].unit != at))
    return apart ? plan.heads : 1;
  int64_t items = 0;
  bool shares = false; // the head before has an item that this one can share
  for (int32_t head = 0; head < plan.heads; ++head) {
    int32_t count = 1;
    for (; block < share.begin.size() && share.begin[block].unit == at && share.begin[block].head == head;
         ++block) {
      count += share.begin[block].step > 0;
      shares &= share.begin[block].step > 0;
    }
    const bool whole = unit.alone && count == 1;
    items += whole && shares ? 0 : count;
    shares = whole && !apart;
    if (whole)
      continue;
    if (unit.first_split < 0)
      unit.first_split = static_cast<int32_t>(plan.splits.size());
    plan.splits.push({u, head, static_cast<int32_t>(plan.num_states), count});
    plan.num_states += int64_t{count} * unit.tokens;
    if (plan.num_states > INT32_MAX)
      plan.num_states = int64_t{INT32_MAX} + 1; // refused by the caller
  }
  return items;
}

} // namespace

// For several levels and fixed splits: the units of each row, in the order of their keys.
void find_cover(rk_work_planner& plan) {
  const int64_t rows = plan.args.num_rows;
  plan.cover.resize(0);
  if (plan.one_level() && plan.args.fixed_split_size == 0)
    return;
  if (!plan.cover.resize_zeroed(rows) || !plan.cover_first.resize(rows + 1))
    return;
  for (const WorkUnit& unit : plan.units)
    for (int32_t i = 0; i < unit.tokens; ++i)
      ++plan.cover[unit.row + i];
  int32_t at = 0;
  for (int64_t row = 0; row < rows; ++row) {
    plan.cover_first[row] = at;
    at += plan.cover[row];
  }
  plan.cover_first[rows] = at;
  if (!plan.cover_units.resize(at))
    return;
  for (int64_t u = 0; u < plan.units.size(); ++u) {
    WorkUnit& unit = plan.units[u];
    for (int32_t i = 0; i < unit.tokens; ++i) {
      const int32_t row = unit.row + i;
      unit.alone &= plan.cover_first[row + 1] - plan.cover_first[row] == 1;
      plan.cover_units[plan.cover_first[row + 1] - plan.cover[row]--] = static_cast<int32_t>(u);
    }
  }
}

// States in the order in which blocks make them, and items: an element with a partial result has its own,
// others share one with their neighbours of other KV heads.
void number_states(rk_work_planner& plan) {
  plan.splits.resize(0);
  plan.num_states = plan.num_items = 0;
  for (int launch = 0; launch < kLaunches; ++launch) {
    const WorkShare& share = plan.shares[launch];
    if (share.dealt.size() > 0) {
      plan.num_items += share.dealt.size() * plan.tiles[launch % kShapes];
      continue;
    }
    if (!share.cut && plan.cover.size() == 0) { // nothing is partial
      plan.num_items += final_items(plan, share, plan.tiles[launch % kShapes]);
      continue;
    }
    int64_t block = 0; // whose begin is the next place
    for (int32_t at = 0; at < share.order.size(); ++at) {
      while (block < share.begin.size() && share.begin[block].unit < at)
        ++block;
      plan.num_items += plan.tiles[launch % kShapes] * number_unit(plan, share, at, block);
    }
  }
}

void list_merges(rk_work_planner& plan) {
  plan.merges.resize(0);
  plan.pieces.resize(0);
  for (const WorkSplit& split : plan.splits)
    if (plan.units[split.unit].alone)
      merge_split(plan, split);
  if (plan.cover.size() > 0 && plan.cover_units.size() > 0)
    list_covered(plan);
}

} // namespace rk

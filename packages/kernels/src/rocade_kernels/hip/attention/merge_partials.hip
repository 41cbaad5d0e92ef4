// Merges the partial states that attention leaves where keys are split or levels meet, and an optional
// further state of every row, into final results.
//
// Blocks with the same x share an item: some rows of one KV head. A thread owns four elements of a row;
// slices of the block take every `slices`-th state of it and meet in LDS. It may start while attention still
// runs: up to `wait_for_previous` it reads the list alone. Blocks without work wait, too, or the kernel could
// end before attention, and what comes behind it start.
#include "arch/types.hpp"
#include "args.hpp"
#include "compensated.hpp"
#include "division.hpp"
#include "log2_sum.hpp"

namespace rocade {

constexpr u32 kThreads = 256;
constexpr u32 kBatch = 8; // states that a thread loads before it uses the first
using Four = Vector<float, 4>;

/// Weighted mean of states, in one pass. A state with an lse of -inf is left out, whatever its values.
struct Mean {
  Four total = {};
  float top = kNegativeInfinity, weight = 0.0f;

  ROCADE_DEVICE void rescale(float next) { // not below top
    const float keep = next == top ? 1.0f : exp2(top - next);
    top = next;
    weight *= keep;
    total *= keep;
  }
  ROCADE_DEVICE void add(float lse, Four values) {
    const float w = lse == kNegativeInfinity ? 0.0f : exp2(lse - top);
    weight += w;
    total += kept_if(w != 0.0f, values) * w;
  }
  ROCADE_DEVICE void join(const Mean& other) {
    rescale(__builtin_fmaxf(top, other.top));
    const float w = other.top == kNegativeInfinity ? 0.0f : exp2(other.top - top);
    weight += other.weight * w;
    total += other.total * w;
  }
  ROCADE_DEVICE Four values() const { return total * (weight == 0.0f ? 0.0f : reciprocal(weight)); }
  ROCADE_DEVICE float lse() const {
    return weight == 0.0f ? kNegativeInfinity : poisoned_by(weight, top + log2_sum(weight));
  }
};

/// LDS in which the slices of a block meet.
struct Meeting {
  Four total[kThreads];
  float top[kThreads], weight[kThreads];

  ROCADE_DEVICE void put(const Mean& from) {
    total[thread_id()] = from.total;
    top[thread_id()] = from.top;
    weight[thread_id()] = from.weight;
  }
  ROCADE_DEVICE void join_to(Mean& to, u32 thread) const {
    Mean other;
    other.total = total[thread];
    other.top = top[thread];
    other.weight = weight[thread];
    to.join(other);
  }
};

struct Column {
  u32 state; // within the item's states: row * group + head of the group
  u32 pack;
};

/// Where the pieces of a batch begin, of states first, first + slices, ...
struct Pieces {
  i32 at[kBatch];

  ROCADE_DEVICE Pieces(const MergePartialsArgs& args, const MergeItem& item, u32 first) {
    const u32 last = static_cast<u32>(item.count) - 1;
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) {
      const u32 state = first + k * args.slices;
      at[k] = static_cast<const i32*>(args.pieces)[item.first + (state < last ? state : last)];
    }
  }
};

/// States slice, slice + slices, ... of an item, four elements of them; `pieces` are those of the first
/// batch.
ROCADE_DEVICE Mean mean_of(const MergePartialsArgs& args, const MergeItem& item, Column column, u32 slice,
                           Pieces pieces) {
  const float* lses = static_cast<const float*>(args.partial_lse);
  const Four* values = static_cast<const Four*>(args.partial_out);
  const u32 count = static_cast<u32>(item.count);
  Mean mean;
  for (u32 j = slice; j < count; j += kBatch * args.slices) {
    if (j > slice)
      pieces = Pieces(args, item, j);
    float lse[kBatch];
    Four value[kBatch];
    float top = mean.top;
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) {
      const i64 place = i64{pieces.at[k]} * args.group + column.state;
      lse[k] = j + k * args.slices < count ? lses[place] : kNegativeInfinity;
      value[k] = values[place * args.packs + column.pack];
      top = __builtin_fmaxf(top, lse[k]);
    }
    mean.rescale(top);
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k)
      mean.add(lse[k], value[k]);
  }
  return mean;
}

ROCADE_DEVICE void add_state(const MergePartialsArgs& args, i64 row, i64 head, u32 pack, Mean& mean) {
  const float lse =
      static_cast<const float*>(args.state_lse)[row * args.state_lse_row + head * args.state_lse_head];
  const Element* from =
      static_cast<const Element*>(args.state_out) + row * args.state_row + head * args.state_head + pack * 4;
  mean.rescale(__builtin_fmaxf(mean.top, lse));
  mean.add(lse, widen<Element, 4>(*reinterpret_cast<const Vector<Element, 4>*>(from)));
}

ROCADE_DEVICE void store_mean(const MergePartialsArgs& args, const MergeItem& item, Column column,
                              Mean mean) {
  const u32 token = divide(column.state, args.group_magic);
  const i64 row = item.row + i64{token};
  const i64 head = i64{item.kv_head} * args.group + (column.state - token * args.group);
  if (args.state_out != nullptr)
    add_state(args, row, head, column.pack, mean);
  Element* to = static_cast<Element*>(args.out) + row * args.out_row + head * args.out_head + column.pack * 4;
  *reinterpret_cast<Vector<Element, 4>*>(to) = narrow<Element, 4>(mean.values());
  if (args.lse != nullptr && column.pack == 0)
    static_cast<float*>(args.lse)[row * args.lse_row + head * args.lse_head] = mean.lse();
}

} // namespace rocade

ROCADE_KERNEL(rocade::kThreads, 3) rocade_merge_partials(ROCADE_ARGUMENT rocade::MergePartialsArgs args) {
  using namespace rocade;
  ROCADE_SHARED static Meeting meeting;
  if (block_x() >= static_cast<u32>(*static_cast<const i32*>(args.count))) {
    wait_for_previous();
    return;
  }
  const MergeItem item = static_cast<const MergeItem*>(args.merges)[block_x()];
  const u32 columns = kThreads / args.slices;
  const u32 slice = thread_id() / columns, first = thread_id() % columns;
  const u32 all = static_cast<u32>(item.rows) * args.group * args.packs;
  const Pieces pieces(args, item, slice);
  wait_for_previous();
  for (u32 base = block_y() * columns; base < all; base += columns * args.parts) {
    const u32 index = base + first;
    const u32 within = index < all ? index : all - 1; // every thread meets the others
    const u32 state = divide(within, args.packs_magic);
    const Column column = {state, within - state * args.packs};
    Mean mean = mean_of(args, item, column, slice, pieces);
    if (args.slices > 1) {
      meeting.put(mean);
      barrier();
      for (u32 other = 1; slice == 0 && other < args.slices; ++other)
        meeting.join_to(mean, other * columns + first);
      barrier();
    }
    if (slice == 0 && index < all)
      store_mean(args, item, column, mean);
  }
}

// Lists of states, one for each result row, and how a block walks them.
//
// A block has `slices` slices, each of whole waves. A slice takes every `slices`-th state of the lists of the
// block's columns. A thread owns one pack of 16 bytes of a row and loads a batch of states of it before it
// uses the first.
#pragma once
#include "args.hpp"
#include "cascade/place.hpp"

namespace rocade {

constexpr int kThreads = 256;

/// A thread's slice, and its column within the block.
struct Slot {
  u32 slices, slice, columns, column;

  ROCADE_DEVICE explicit Slot(u32 slices) : slices(slices) {
    const u32 shift = static_cast<u32>(__builtin_ctz(slices));
    columns = static_cast<u32>(kThreads) >> shift;
    slice = uniform(wave_id() * kWave / columns);
    column = thread_id() & (columns - 1);
  }
};

/// The states of a result row: `first` and how many. What indptr says is cut to the states that exist.
struct List {
  u32 first, count;
};

template <class Args> ROCADE_DEVICE List list_of(const Args& args, const Place& place) {
  const bool exists = place.row < args.rows;
  if (args.indptr == nullptr)
    return {0, exists ? args.fixed : 0};
  u32 first = 0, last = 0;
  if (exists && place.leads()) {
    const i32* indptr = static_cast<const i32*>(args.indptr) + place.row;
    const i64 begin = indptr[0], end = indptr[1];
    first = static_cast<u32>(begin < 0 ? 0 : begin);
    last = static_cast<u32>(end < 0 ? 0 : end < args.states ? end : args.states);
  }
  first = shuffle(first, place.leader);
  last = shuffle(last, place.leader);
  return {first, first < last ? last - first : 0};
}

/// How many states a thread reads, and its wave in batches: lanes exchange what they load, so all of them go
/// through as many batches as the lane with the most states.
template <u32 kBatch> struct Walk {
  u32 count;
  u32 full; // batches that every lane has in full; they come first
  u32 batches;

  /// `same`: all lanes of the block have lists of this length.
  ROCADE_DEVICE Walk(u32 length, bool same, const Slot& slot) {
    const u32 shift = static_cast<u32>(__builtin_ctz(slot.slices));
    count = slot.slice < length ? (length - slot.slice + slot.slices - 1) >> shift : 0;
    full = uniform((same ? count : wave_min(count)) / kBatch);
    batches = uniform(((same ? count : wave_max(count)) + kBatch - 1) / kBatch);
  }

  /// Calls `to.load<full>(count)` and `to.take()` for every batch; `count` states of it are this thread's.
  template <class Accumulator> ROCADE_DEVICE void run(Accumulator& to) const {
    u32 batch = 0;
#pragma unroll 1
    for (; batch < full; ++batch) {
      to.template load<true>(kBatch);
      to.take();
    }
#pragma unroll 1
    for (; batch < batches; ++batch) {
      const u32 done = batch * kBatch;
      to.template load<false>(count > done ? count - done : 0);
      to.take();
    }
  }
};

} // namespace rocade

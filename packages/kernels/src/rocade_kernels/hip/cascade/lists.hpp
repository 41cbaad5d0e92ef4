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

/// A thread's slice, and its number among the slice's threads.
struct Slot {
  u32 shift, slice, threads, thread; // 2 to the power of shift slices

  ROCADE_DEVICE explicit Slot(u32 shift) : shift(shift), threads(static_cast<u32>(kThreads) >> shift) {
    slice = uniform(wave_id() * kWave / threads);
    thread = thread_id() & (threads - 1);
  }
};

/// The states of a result row: `first` and how many. What indptr says is cut to the states that exist.
struct List {
  u32 first, count;
};

template <class Args> ROCADE_DEVICE List list_of(const Args& args, const Place& place) {
  if (args.indptr == nullptr)
    return {0, args.fixed};
  u32 first = 0, last = 0;
  if (place.loads_shared()) {
    const i32* indptr = static_cast<const i32*>(args.indptr) + place.row();
    const i64 begin = indptr[0], end = indptr[1];
    first = static_cast<u32>(begin < 0 ? 0 : begin);
    last = static_cast<u32>(end < 0 ? 0 : end < args.states ? end : args.states);
  }
  first = place.handed_on(first);
  last = place.handed_on(last);
  return {first, first < last ? last - first : 0};
}

/// How many states a thread reads, and in how many batches. Lanes that hand values on to each other have the
/// same row, and so the same numbers.
template <u32 kBatch> struct Walk {
  u32 count, full; // full batches; they come first

  ROCADE_DEVICE Walk(u32 length, const Slot& slot) {
    count = slot.slice < length ? ((length - 1 - slot.slice) >> slot.shift) + 1 : 0;
    full = count / kBatch;
  }

  /// Calls `load` and `take` of an accumulator for every batch.
  template <class Accumulator> ROCADE_DEVICE void run(Accumulator& to) const {
    typename Accumulator::Batch batch;
#pragma unroll 1
    for (u32 done = 0; done < full; ++done) {
      to.template load<true>(batch, kBatch);
      to.take(batch);
    }
    if (count % kBatch != 0) {
      to.template load<false>(batch, count % kBatch);
      to.take(batch);
    }
  }
};

} // namespace rocade

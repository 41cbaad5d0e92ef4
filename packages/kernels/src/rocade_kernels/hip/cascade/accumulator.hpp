// What a thread keeps while it walks a list of states: a weighted mean in one pass, or a plain sum. All fp32.
#pragma once
#include "cascade/lists.hpp"
#include "log2_sum.hpp"

namespace rocade {

/// kPack<In> elements of a row. Weighted: `total` is the sum of 2^(lse - top) v, `weight` that of 2^(lse -
/// top), `top` the greatest lse so far. A state with an lse of -inf is left out, whatever its values.
template <class In, bool kWeighted, bool kAligned> struct Accumulator {
  static constexpr int kPacked = kPack<In>;
  static constexpr u32 kBatch = kAligned ? 4 : 1; // the slow path must not cost the fast one registers
  using Floats = Vector<float, kPacked>;

  Floats total{};
  float top = kNegativeInfinity, weight = 0.0f;

  const In* v; // of the next state
  i64 v_step;
  const float* s;
  i64 s_step;
  const Place& place;

  struct Batch {
    Vector<In, kPacked> packs[kBatch];
    float lse[kBatch];
  };

  template <class Args>
  ROCADE_DEVICE Accumulator(const Args& args, const Place& place, const Slot& slot, List list)
      : v_step(slot.slices * args.v_state), place(place) {
    const u64 first = list.first + slot.slice;
    v = place.at(static_cast<const In*>(args.v), args.v_row, args.v_head) + first * args.v_state +
        place.pack * kPacked;
    if constexpr (kWeighted) {
      s = place.at(static_cast<const float*>(args.s), args.s_row, args.s_head) + first * args.s_state;
      s_step = slot.slices * args.s_state;
    }
  }

  /// Starts the loads of the next batch; of its states only the first `count` are there unless it is full.
  template <bool kFull> ROCADE_DEVICE void load(Batch& batch, u32 count) {
    if constexpr (kWeighted) {
#pragma unroll
      for (u32 k = 0; k < kBatch; ++k)
        batch.lse[k] = kNegativeInfinity;
      if (place.loads_shared()) {
#pragma unroll
        for (u32 k = 0; k < kBatch; ++k)
          if (kFull || k < count)
            batch.lse[k] = s[k * s_step];
      }
      s += kBatch * s_step;
    }
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) {
      batch.packs[k] = {};
      if (kFull || k < count)
        batch.packs[k] = rocade::load<In, kPacked, kAligned>(v + k * v_step);
    }
    v += kBatch * v_step;
  }

  /// Adds a batch to the total.
  ROCADE_DEVICE void take(const Batch& batch) {
    if constexpr (kWeighted) {
      float lse[kBatch], next = top;
#pragma unroll
      for (u32 k = 0; k < kBatch; ++k) {
        lse[k] = place.handed_on(batch.lse[k]);
        next = __builtin_fmaxf(next, lse[k]);
      }
      rescale(next);
      const float base = top == kNegativeInfinity ? 0.0f : top;
#pragma unroll
      for (u32 k = 0; k < kBatch; ++k) {
        const float w = exp2(lse[k] - base);
        weight += w;
        total += widen<In, kPacked>(kept_if(w != 0.0f, batch.packs[k])) * w;
      }
    } else {
#pragma unroll
      for (u32 k = 0; k < kBatch; ++k)
        total += widen<In, kPacked>(batch.packs[k]);
    }
  }

  /// Makes `next` the top; it is not below the one before.
  ROCADE_DEVICE void rescale(float next) {
    const float keep = next == top ? 1.0f : exp2(top - next); // -inf minus -inf must not be computed
    top = next;
    weight *= keep;
    total *= keep;
  }

  /// Adds what another slice has of the same columns.
  ROCADE_DEVICE void join(Floats other_total, float other_top, float other_weight) {
    if constexpr (kWeighted) {
      rescale(__builtin_fmaxf(top, other_top));
      const float factor = other_top == kNegativeInfinity ? 0.0f : exp2(other_top - top);
      weight += other_weight * factor;
      total += other_total * factor;
    } else {
      total += other_total;
    }
  }

  /// The result of the list. The greatest weight is 1, so `weight` is below 1 only when there is no state.
  ROCADE_DEVICE Floats mean() const {
    return kWeighted ? total * reciprocal(__builtin_fmaxf(weight, 1.0f)) : total;
  }
  ROCADE_DEVICE float mean_lse() const { return top + log2_sum(__builtin_fmaxf(weight, 1.0f)); }
};

/// LDS in which the slices of a block meet. Neighbouring threads use neighbouring words: no bank conflicts.
template <int kPacked> struct Meeting {
  static constexpr int kQuads = kPacked / 4;
  Vector<float, 4> total[kQuads][kThreads];
  float top[kThreads], weight[kThreads];

  template <class A> ROCADE_DEVICE void put(const A& from) {
    const u32 at = thread_id();
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      total[q][at] = Vector<float, 4>{from.total[q * 4], from.total[q * 4 + 1], from.total[q * 4 + 2],
                                      from.total[q * 4 + 3]};
    top[at] = from.top;
    weight[at] = from.weight;
  }

  /// For a thread of slice 0: adds what the others have put, in their order.
  template <class A> ROCADE_DEVICE void get(A& to, const Slot& slot) const {
    for (u32 at = thread_id() + slot.threads; at < kThreads; at += slot.threads) {
      Vector<float, kPacked> other;
#pragma unroll
      for (int e = 0; e < kPacked; ++e)
        other[e] = total[e / 4][at][e % 4];
      to.join(other, top[at], weight[at]);
    }
  }
};

/// A whole kernel: walks the lists, lets slices meet, stores the results.
template <class In, class Out, bool kWeighted, bool kAligned, class Args>
ROCADE_DEVICE void reduce_lists(const Args& args, Meeting<kPack<In>>& meeting) {
  using Sum = Accumulator<In, kWeighted, kAligned>;
  const Slot slot(args.slices);
  const Place place = place_of(args, slot.thread);
  if (!place.inside)
    return;
  const List list = list_of(args, place);
  const Walk<Sum::kBatch> walk(list.count, args.indptr == nullptr && is_whole(args), slot);
  Sum sum(args, place, slot, list);
  walk.run(sum);
  if (slot.slices > 1) {
    if (slot.slice != 0)
      meeting.put(sum);
    barrier();
    if (slot.slice != 0)
      return;
    meeting.get(sum, slot);
  }
  if (place.row() >= args.rows)
    return;
  Out* to = place.at(static_cast<Out*>(args.v_out), args.v_out_row, args.v_out_head);
  store<Out, Sum::kPacked, kAligned>(to + place.pack * Sum::kPacked, narrow<Out, Sum::kPacked>(sum.mean()));
  if constexpr (kWeighted) {
    if (place.pack == 0)
      *place.at(static_cast<float*>(args.s_out), args.s_out_row, args.s_out_head) = sum.mean_lse();
  }
}

} // namespace rocade

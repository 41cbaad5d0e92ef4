// What a thread keeps while it walks a list of states: a weighted mean in one pass, or a plain sum. All fp32.
#pragma once
#include "cascade/lists.hpp"
#include "compensated.hpp"
#include "log2_sum.hpp"

namespace rocade {

/// kPack<In> elements of a row. Weighted: `total` is the sum of 2^(lse - top) v, `weight` that of 2^(lse -
/// top), `top` the greatest lse so far. A state with an lse of -inf is left out, whatever its values.
template <class In, bool kWeighted, Form kForm, bool kLong> struct Accumulator {
  static constexpr bool kAligned = kForm != Form::unaligned;
  static constexpr int kPacked = kPack<In>;
  static constexpr u32 kBatch = kAligned ? 4 : 1; // the slow path must not cost the fast one registers
  using Floats = Vector<float, kPacked>;

  Floats total{}, lost{}; // lost: see compensated.hpp
  float top = kNegativeInfinity, weight = 0.0f, lost_weight = 0.0f;

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
      : v_step(args.v_state << slot.shift), place(place) {
    const u64 first = list.first + slot.slice;
    v = place.at<kForm>(static_cast<const In*>(args.v), args.v_row, args.v_head, kPacked) +
        first * args.v_state;
    if constexpr (kWeighted) {
      s = place.at<kForm>(static_cast<const float*>(args.s), args.s_row, args.s_head, 0) +
          first * args.s_state;
      s_step = args.s_state << slot.shift;
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
    Floats sum{};
    if constexpr (kWeighted) {
      float lse[kBatch], next = top, weights = 0.0f;
#pragma unroll
      for (u32 k = 0; k < kBatch; ++k) {
        lse[k] = place.handed_on(batch.lse[k]);
        next = __builtin_fmaxf(next, lse[k]);
      }
      const float keep = rescale(next);
#pragma unroll
      for (u32 k = 0; k < kBatch; ++k) {
        const float w = exp2(lse[k] - base());
        weights += w;
        sum += widen<In, kPacked>(kept_if(w != 0.0f, batch.packs[k])) * w;
      }
      add(keep, sum, weights);
    } else {
#pragma unroll
      for (u32 k = 0; k < kBatch; ++k)
        sum += widen<In, kPacked>(batch.packs[k]);
      add(1.0f, sum, 0.0f);
    }
  }

  /// What is subtracted from an lse: 0 while there is no state, since -inf minus -inf is no number.
  ROCADE_DEVICE float base() const { return top == kNegativeInfinity ? 0.0f : top; }

  /// Makes `next` the top, which is not below the one before; returns the factor that totals are due. No
  /// branches: loads would be moved behind them.
  ROCADE_DEVICE float rescale(float next) {
    const float before = top;
    top = next;
    return exp2(before - base());
  }

  /// Adds the sums of a group of states. A short list has few groups, whose rounding cannot add up.
  ROCADE_DEVICE void add(float keep, const Floats& sum, float weights) {
    if constexpr (kLong) {
      add_to(weight, lost_weight, keep, weights);
      add_to<kPacked>(total, lost, keep, sum);
    } else {
      weight = weight * keep + weights;
      total = total * keep + sum;
    }
  }

  /// Adds what another slice has of the same columns.
  ROCADE_DEVICE void join(Floats other_total, float other_top, float other_weight) {
    if constexpr (kWeighted) {
      const float keep = rescale(__builtin_fmaxf(top, other_top));
      const float factor = exp2(other_top - base());
      add(keep, other_total * factor, other_weight * factor);
    } else {
      add(1.0f, other_total, 0.0f);
    }
  }

  ROCADE_DEVICE Floats whole() const { return total + lost; }
  ROCADE_DEVICE float whole_weight() const { return weight + lost_weight; }

  /// The result of the list. The greatest weight is 1, so the sum is below 1 only when there is no state.
  ROCADE_DEVICE Floats mean() const {
    return kWeighted ? whole() * reciprocal(__builtin_fmaxf(whole_weight(), 1.0f)) : whole();
  }
  ROCADE_DEVICE float mean_lse() const {
    return poisoned_by(weight, top + log2_sum(__builtin_fmaxf(whole_weight(), 1.0f)));
  }
};

/// States of a list that are summed without compensation: 16 groups of 4, within 17 units in the last place.
constexpr u32 kShort = 64;

/// LDS in which the slices of a block meet. Neighbouring threads use neighbouring words: no bank conflicts.
template <int kPacked> struct Meeting {
  static constexpr int kQuads = kPacked / 4;
  Vector<float, 4> total[kQuads][kThreads];
  float top[kThreads], weight[kThreads];

  template <class A> ROCADE_DEVICE void put(const A& from) {
    const u32 at = thread_id();
    const Vector<float, kPacked> whole = from.whole();
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      total[q][at] = Vector<float, 4>{whole[q * 4], whole[q * 4 + 1], whole[q * 4 + 2], whole[q * 4 + 3]};
    top[at] = from.top;
    weight[at] = from.whole_weight();
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

template <class In, class Out, bool kWeighted, Form kForm, bool kLong = true, class Args>
ROCADE_DEVICE void reduce(const Args& args, const Slot& slot, const Place& place, List list,
                          Meeting<kPack<In>>& meeting) {
  Accumulator<In, kWeighted, kForm, kLong> sum(args, place, slot, list);
  const Walk<sum.kBatch> walk(list.count, slot);
  walk.run(sum);
  if (slot.shift != 0) {
    if (slot.slice != 0)
      meeting.put(sum);
    barrier(); // among the threads that have not ended: those with a place
    if (slot.slice != 0)
      return;
    meeting.get(sum, slot);
  }
  store<Out, sum.kPacked, sum.kAligned>(
      place.at<kForm>(static_cast<Out*>(args.v_out), args.v_out_row, args.v_out_head, sum.kPacked),
      narrow<Out, sum.kPacked>(sum.mean()));
  if constexpr (kWeighted) {
    if (place.pack == 0)
      *place.at<kForm>(static_cast<float*>(args.s_out), args.s_out_row, args.s_out_head, 0) = sum.mean_lse();
  }
}

/// A whole kernel: walks the lists, lets slices meet, stores the results.
template <class In, class Out, bool kWeighted, class Args>
ROCADE_DEVICE void reduce_lists(const Args& args, Meeting<kPack<In>>& meeting) {
  const Slot slot(args.slice_shift);
  const Place place = place_of(args, slot.thread);
  if (!place.inside)
    return;
  const List list = list_of(args, place);
  const Form form = static_cast<Form>(args.form);
  if (form == Form::dense && args.indptr == nullptr && args.fixed <= kShort) [[likely]]
    reduce<In, Out, kWeighted, Form::dense, false>(args, slot, place, list, meeting);
  else if (form == Form::dense)
    reduce<In, Out, kWeighted, Form::dense>(args, slot, place, list, meeting);
  else if (form == Form::aligned)
    reduce<In, Out, kWeighted, Form::aligned>(args, slot, place, list, meeting);
  else
    reduce<In, Out, kWeighted, Form::unaligned>(args, slot, place, list, meeting);
}

} // namespace rocade

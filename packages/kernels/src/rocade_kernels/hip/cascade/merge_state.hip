// Merges two attention states row by row, in place if asked; rows that a mask leaves out are not touched.
//
// In place, the lse of a head is read by all its threads and written by one, after the others have read it. A
// head does not cross blocks, but it may cross waves: then they meet at a barrier.
//
// Each thread merges one pack of 16 bytes in each of `deep_rows` rows. All its loads are in flight before the
// first is used.
#include "args.hpp"
#include "cascade/place.hpp"
#include "log2_sum.hpp"

namespace rocade {

constexpr int kPacked = kPack<Element>;
using Packed = Vector<Element, kPacked>;
using Floats = Vector<float, kPacked>;

// Weights of two states in their merged one. An lse of -inf leaves its state out; two of them merge to zeros
// and -inf. The greater weight is 1 before it is divided by their sum, so a sum below 1 is 0.
struct Weights {
  float a, b, top, sum;

  ROCADE_DEVICE Weights(float s_a, float s_b) {
    top = __builtin_fmaxf(s_a, s_b);
    const float base = top == kNegativeInfinity ? 0.0f : top;
    a = exp2(s_a - base);
    b = exp2(s_b - base);
    sum = __builtin_fmaxf(a + b, 1.0f);
    const float inverse = reciprocal(sum);
    a *= inverse;
    b *= inverse;
  }

  ROCADE_DEVICE float lse() const { return top + log2_sum(sum); }
};

// Where one thread's packs of its first row are, and the lse of its head.
struct Pointers {
  const Element *v_a, *v_b;
  const float *s_a, *s_b;
  Element* v_out;
  float* s_out;

  ROCADE_DEVICE Pointers(const MergeStateArgs& args, const Place& place) {
    const u32 pack = place.pack * kPacked;
    v_a = place.at(static_cast<const Element*>(args.v_a), args.v_a_row, args.v_a_head) + pack;
    v_b = place.at(static_cast<const Element*>(args.v_b), args.v_b_row, args.v_b_head) + pack;
    s_a = place.at(static_cast<const float*>(args.s_a), args.s_a_row, args.s_a_head);
    s_b = place.at(static_cast<const float*>(args.s_b), args.s_b_row, args.s_b_head);
    v_out = place.at(static_cast<Element*>(args.v_out), args.v_out_row, args.v_out_head) + pack;
    s_out = place.at(static_cast<float*>(args.s_out), args.s_out_row, args.s_out_head);
  }
};

// One thread's packs of one row, `r` rows below the first. `kAligned`: see load().
template <bool kAligned> struct Row {
  Packed a{}, b{};
  float s_a = kNegativeInfinity, s_b = kNegativeInfinity;

  ROCADE_DEVICE void load_lse(const MergeStateArgs& args, const Pointers& from, i64 r) {
    s_a = from.s_a[r * args.s_a_row];
    s_b = from.s_b[r * args.s_b_row];
  }
  ROCADE_DEVICE void load_values(const MergeStateArgs& args, const Pointers& from, i64 r) {
    a = load<Element, kPacked, kAligned>(from.v_a + r * args.v_a_row);
    b = load<Element, kPacked, kAligned>(from.v_b + r * args.v_b_row);
  }
  ROCADE_DEVICE Weights weights(const Place& place) const {
    return {place.handed_on(s_a), place.handed_on(s_b)};
  }
  ROCADE_DEVICE void store_merged(const MergeStateArgs& args, const Place& place, const Pointers& to, i64 r,
                                  const Weights& w) const {
    const Floats merged = widen<Element, kPacked>(kept_if(w.a != 0.0f, a)) * w.a +
                          widen<Element, kPacked>(kept_if(w.b != 0.0f, b)) * w.b;
    store<Element, kPacked, kAligned>(to.v_out + r * args.v_out_row, narrow<Element, kPacked>(merged));
    if (place.pack == 0)
      to.s_out[r * args.s_out_row] = w.lse();
  }
};

// Comes between what threads load and what they store.
struct Turn {
  bool in_place, crosses;

  ROCADE_DEVICE explicit Turn(const MergeStateArgs& args)
      : in_place(args.s_out == args.s_a || args.s_out == args.s_b), crosses(kWave % args.packs != 0) {}

  template <bool kAligned> ROCADE_DEVICE void between(Row<kAligned>& row) const {
    if (!in_place)
      return;
    row.s_a = arrived(row.s_a);
    row.s_b = arrived(row.s_b);
    if (crosses)
      barrier();
    else
      wave_barrier();
  }
};

// kRows rows that all exist and are all merged.
template <int kRows> ROCADE_DEVICE void merge_all(const MergeStateArgs& args, const Place& place) {
  const Pointers at(args, place);
  const Turn turn(args);
  Row<true> rows[kRows];
  if (place.loads_shared()) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      rows[r].load_lse(args, at, i64{args.side_rows} * r);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    rows[r].load_values(args, at, i64{args.side_rows} * r);
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    turn.between(rows[r]);
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    rows[r].store_merged(args, place, at, i64{args.side_rows} * r, rows[r].weights(place));
}

// Whether a row exists and the mask, if there is one, has it merged. All lanes must be active.
ROCADE_DEVICE bool is_chosen(const MergeStateArgs& args, const Place& place, i64 row) {
  const bool exists = row < args.rows;
  if (args.mask == nullptr)
    return exists;
  u32 chosen = 0;
  if (exists && place.loads_shared())
    chosen = static_cast<const u8*>(args.mask)[row];
  return place.handed_on(chosen) != 0;
}

template <bool kAligned> ROCADE_DEVICE void merge_some(const MergeStateArgs& args, const Place& place) {
  const Pointers at(args, place);
  const Turn turn(args);
#pragma unroll 1
  for (u32 deep = 0; deep < args.deep_rows; ++deep) {
    const i64 r = i64{args.side_rows} * deep;
    const bool chosen = is_chosen(args, place, place.row() + r);
    Row<kAligned> row;
    if (chosen && place.loads_shared())
      row.load_lse(args, at, r);
    if (chosen)
      row.load_values(args, at, r);
    turn.between(row);
    const Weights weights = row.weights(place);
    if (chosen)
      row.store_merged(args, place, at, r, weights);
  }
}

} // namespace rocade

ROCADE_KERNEL(rocade::kThreads) rocade_merge_state(ROCADE_ARGUMENT rocade::MergeStateArgs args) {
  using namespace rocade;
  const Place place = place_of(args, thread_id());
  if (!place.inside)
    return;
  if (args.aligned && args.mask == nullptr && is_whole(args)) [[likely]] {
    if (args.deep_rows == 2)
      return merge_all<2>(args, place);
    if (args.deep_rows == 1)
      return merge_all<1>(args, place);
  }
  if (args.aligned)
    merge_some<true>(args, place);
  else
    merge_some<false>(args, place);
}

// Merges two attention states row by row, in place if asked; rows that a mask leaves out are not touched.
//
// The plain variant is for tensors without gaps and without mask: their packs are numbered through, and the
// threads take them in that order. A kernel that lives two microseconds has to be short, with few arguments:
// each launch fetches both anew. The variant strided takes everything else.
//
// In place, the lse of a head is read by all its threads and written by one, after the others have read it. A
// head does not cross blocks, but it may cross waves: then they meet at a barrier. Each thread has one pack.
#include "args.hpp"
#include "cascade/place.hpp"
#include "compensated.hpp"
#include "log2_sum.hpp"

namespace rocade {

constexpr int kThreads = 512;
constexpr int kPacked = kPack<Element>;
using Packed = Vector<Element, kPacked>;
using Floats = Vector<float, kPacked>;

// Weights of two states in their merged one. An lse of -inf leaves its state out; two of them merge to zeros
// and -inf. The greater weight is 1 before it is divided by their sum, so a sum below 1 is 0.
struct Weights {
  float a, b, top, weight, sum;

  ROCADE_DEVICE Weights(float s_a, float s_b) {
    top = __builtin_fmaxf(s_a, s_b);
    const float base = top == kNegativeInfinity ? 0.0f : top;
    a = exp2(s_a - base);
    b = exp2(s_b - base);
    weight = a + b;
    sum = __builtin_fmaxf(weight, 1.0f);
    const float inverse = reciprocal(sum);
    a *= inverse;
    b *= inverse;
  }

  ROCADE_DEVICE float lse() const { return poisoned_by(weight, top + log2_sum(sum)); }
};

// What a thread reads and writes: its pack of each tensor of values, its head's lse.
struct Addresses {
  const Element *v_a, *v_b;
  const float *s_a, *s_b;
  Element* v_out;
  float* s_out;
};

// `crosses`: it is in place, and a head may lie in several waves. Those that have work then come here
// together.
template <bool kAligned> ROCADE_DEVICE void merge(const Addresses& at, const Place& place, bool crosses) {
  float s_a = kNegativeInfinity, s_b = kNegativeInfinity;
  if (place.loads_shared()) {
    s_a = *at.s_a;
    s_b = *at.s_b;
  }
  const Packed a = load<Element, kPacked, kAligned>(at.v_a);
  const Packed b = load<Element, kPacked, kAligned>(at.v_b);
  if (crosses) {
    s_a = arrived(s_a);
    s_b = arrived(s_b);
    barrier(); // among the threads that have not ended: those with a place in a row that is merged
  } else {
    wave_barrier();
  }
  const Weights w(place.handed_on(s_a), place.handed_on(s_b));
  // A state of weight 0 may hold anything, NaN included.
  const Floats merged = widen<Element, kPacked>(kept_if(w.a != 0.0f, a)) * w.a +
                        widen<Element, kPacked>(kept_if(w.b != 0.0f, b)) * w.b;
  const float lse = made_here(w.lse());
  store<Element, kPacked, kAligned>(at.v_out, narrow<Element, kPacked>(merged));
  if (place.pack == 0)
    *at.s_out = lse;
}

#if ROCADE_VARIANT_STRIDED

// Whether the mask, if there is one, has the thread's row merged. The lanes of a row must be active.
ROCADE_DEVICE bool is_chosen(const MergeStateArgs& args, const Place& place) {
  if (args.mask == nullptr)
    return true;
  u32 chosen = 0;
  if (place.loads_shared())
    chosen = static_cast<const u8*>(args.mask)[place.row()];
  return place.handed_on(chosen) != 0;
}

template <Form kForm> ROCADE_DEVICE void merge_strided(const MergeStateArgs& args, const Place& place) {
  const auto v = [&](void* base, i64 row, i64 head) {
    return place.at<kForm>(static_cast<Element*>(base), row, head, kPacked);
  };
  const auto s = [&](void* base, i64 row, i64 head) {
    return place.at<kForm>(static_cast<float*>(base), row, head, 0);
  };
  const Addresses at{
      v(args.v_a, args.v_a_row, args.v_a_head),       v(args.v_b, args.v_b_row, args.v_b_head),
      s(args.s_a, args.s_a_row, args.s_a_head),       s(args.s_b, args.s_b_row, args.s_b_head),
      v(args.v_out, args.v_out_row, args.v_out_head), s(args.s_out, args.s_out_row, args.s_out_head)};
  const bool in_place = args.s_out == args.s_a || args.s_out == args.s_b;
  merge<kForm != Form::unaligned>(at, place, in_place && kWave % args.packs != 0);
}

#else

ROCADE_DEVICE void merge_dense(const MergeStateDenseArgs& args, u32 index) {
  const u32 head = divide(index, args.packs_magic), pack = index - head * args.packs; // of the whole tensor
  const u32 lane = lane_id();
  const Place place{0, 0, index, head, pack, lane - (pack < lane ? pack : lane), true};
  const u64 element = u64{index} * kPacked;
  const Addresses at{
      static_cast<const Element*>(args.v_a) + element, static_cast<const Element*>(args.v_b) + element,
      static_cast<const float*>(args.s_a) + head,      static_cast<const float*>(args.s_b) + head,
      static_cast<Element*>(args.v_out) + element,     static_cast<float*>(args.s_out) + head};
  merge<true>(at, place, args.crosses != 0);
}

#endif

} // namespace rocade

#if ROCADE_VARIANT_STRIDED
ROCADE_KERNEL(rocade::kThreads, 3) rocade_merge_state(ROCADE_ARGUMENT rocade::MergeStateArgs args) {
  using namespace rocade;
  const Place place = place_of(args, thread_id());
  if (!place.inside || !is_chosen(args, place))
    return;
  if (static_cast<Form>(args.form) == Form::unaligned)
    merge_strided<Form::unaligned>(args, place);
  else
    merge_strided<Form::aligned>(args, place);
}
#else
ROCADE_KERNEL(rocade::kThreads, 4) rocade_merge_state(ROCADE_ARGUMENT rocade::MergeStateDenseArgs args) {
  using namespace rocade;
  const u32 index = block_x() * args.width + thread_id();
  if (thread_id() < args.width && index < args.total)
    merge_dense(args, index);
}
#endif

// Merges two attention states row by row, in place if asked; rows that a mask leaves out are not touched.
//
// In place, the lse of a head is read by all its threads and written by one, after the others have read it. A
// head does not cross blocks, but it may cross waves: then they meet at a barrier. Each thread has one pack.
#include "args.hpp"
#include "cascade/place.hpp"
#include "log2_sum.hpp"

namespace rocade {

constexpr int kThreads = 512;
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

// Whether the mask, if there is one, has the thread's row merged. The lanes of a row must be active.
ROCADE_DEVICE bool is_chosen(const MergeStateArgs& args, const Place& place) {
  if (args.mask == nullptr)
    return true;
  u32 chosen = 0;
  if (place.loads_shared())
    chosen = static_cast<const u8*>(args.mask)[place.row()];
  return place.handed_on(chosen) != 0;
}

// Between the loads and the stores of lse: in place, all lanes of a head must have theirs.
ROCADE_DEVICE void take_turns(const MergeStateArgs& args, float& s_a, float& s_b) {
  if (args.s_out != args.s_a && args.s_out != args.s_b)
    return;
  s_a = arrived(s_a);
  s_b = arrived(s_b);
  if (kWave % args.packs != 0)
    barrier(); // among the threads that have not ended: those with a place in a row that is merged
  else
    wave_barrier();
}

template <Form kForm> ROCADE_DEVICE void merge(const MergeStateArgs& args, const Place& place) {
  constexpr bool kAligned = kForm != Form::unaligned;
  float s_a = kNegativeInfinity, s_b = kNegativeInfinity;
  if (place.loads_shared()) {
    s_a = *place.at<kForm>(static_cast<const float*>(args.s_a), args.s_a_row, args.s_a_head, 0);
    s_b = *place.at<kForm>(static_cast<const float*>(args.s_b), args.s_b_row, args.s_b_head, 0);
  }
  const Packed a = load<Element, kPacked, kAligned>(
      place.at<kForm>(static_cast<const Element*>(args.v_a), args.v_a_row, args.v_a_head, kPacked));
  const Packed b = load<Element, kPacked, kAligned>(
      place.at<kForm>(static_cast<const Element*>(args.v_b), args.v_b_row, args.v_b_head, kPacked));
  take_turns(args, s_a, s_b);
  const Weights w(place.handed_on(s_a), place.handed_on(s_b));
  // A state of weight 0 may hold anything, NaN included.
  const Floats merged = widen<Element, kPacked>(kept_if(w.a != 0.0f, a)) * w.a +
                        widen<Element, kPacked>(kept_if(w.b != 0.0f, b)) * w.b;
  store<Element, kPacked, kAligned>(
      place.at<kForm>(static_cast<Element*>(args.v_out), args.v_out_row, args.v_out_head, kPacked),
      narrow<Element, kPacked>(merged));
  if (place.pack == 0)
    *place.at<kForm>(static_cast<float*>(args.s_out), args.s_out_row, args.s_out_head, 0) = w.lse();
}

} // namespace rocade

ROCADE_KERNEL(rocade::kThreads, 3) rocade_merge_state(ROCADE_ARGUMENT rocade::MergeStateArgs args) {
  using namespace rocade;
  const Place place = place_of(args, thread_id());
  if (!place.inside || !is_chosen(args, place))
    return;
#if ROCADE_VARIANT_STRIDED
  if (static_cast<Form>(args.form) == Form::unaligned)
    merge<Form::unaligned>(args, place);
  else
    merge<Form::aligned>(args, place);
#else // dense tensors only: a kernel of two microseconds must be short, since every launch fetches it anew
  merge<Form::dense>(args, place);
#endif
}

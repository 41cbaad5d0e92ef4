// A running total that remembers what rounding took from it.
//
// Equal terms are rounded the same way again and again: a plain fp32 total of 8,192 of them is off by some
// hundred units in the last place. Terms are summed plainly in small groups, and groups by `add_to`.
#pragma once
#include "arch/types.hpp"

namespace rocade {

/// Makes `total` total * keep + x. The exact value is total + lost, but for rounding of the second order.
ROCADE_DEVICE void add_to(float& total, float& lost, float keep, float x) {
  const float due = __builtin_fmaf(lost, keep, x);
  const float next = __builtin_fmaf(total, keep, due);
  const float rest = due - __builtin_fmaf(-total, keep, next);
  lost = rest - rest == 0.0f ? rest : 0.0f; // else an infinite total would become NaN
  total = next;
}

/// The same for each element.
template <int kCount>
ROCADE_DEVICE void add_to(Vector<float, kCount>& total, Vector<float, kCount>& lost, float keep,
                          const Vector<float, kCount>& x) {
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    float t = total[e], l = lost[e];
    add_to(t, l, keep, x[e]);
    total[e] = t;
    lost[e] = l;
  }
}

/// `lse`, or NaN when the sum of weights is NaN: maxima of the hardware drop the NaN of a state's lse.
ROCADE_DEVICE float poisoned_by(float weight, float lse) { return __builtin_fmaf(0.0f, weight, lse); }

} // namespace rocade

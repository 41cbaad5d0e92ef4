// log2 of a sum of weights, precise enough for an lse that fp32 rounding alone may disturb.
#pragma once
#include "arch/device.hpp"

namespace rocade {

/// log2(x) of a normal x > 0 within 2^-24 of the absolute value, or of the last place where that is more.
/// log2(1) is 0. With x = 2^e m, sqrt(1/2) <= m < sqrt(2): log2(m) = 2 / ln 2 * atanh((m - 1) / (m + 1)).
ROCADE_DEVICE float log2_sum(float x) {
  constexpr u32 kHalfRoot = 0x3f3504f3, kMantissa = 0x007fffff; // bits of sqrt(1/2); of a mantissa
  const u32 shifted = bits_as<u32>(x) - kHalfRoot;
  const float exponent = static_cast<float>(static_cast<i32>(shifted) >> 23);
  const float m = bits_as<float>((shifted & kMantissa) + kHalfRoot);
  const float t = (m - 1.0f) * reciprocal(m + 1.0f);
  const float t2 = t * t;
  constexpr float k1 = 2.885390082f, k3 = k1 / 3, k5 = k1 / 5, k7 = k1 / 7, k9 = k1 / 9;
  return exponent + t * (k1 + t2 * (k3 + t2 * (k5 + t2 * (k7 + t2 * k9))));
}

} // namespace rocade

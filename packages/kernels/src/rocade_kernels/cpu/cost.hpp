// The planner's cost model: how long work takes, in nanoseconds of one thread. All coefficients are here.
//
// Measured with AVX-512 on a two-core AMD Zen 4 machine (32 MiB last-level cache), K and V in bf16 and fp32,
// head dimension 128, 4 to 192 rows of a KV head. Only ratios matter to the planner; they differ little with
// AVX2.
#pragma once
#include "plan.hpp"

namespace rk {

struct Cost {
  // A byte of K and V: from memory when one thread streams alone, when all threads share the memory's
  // bandwidth, and from the last-level cache.
  static constexpr double kNsPerByteAlone = 0.047;
  static constexpr double kNsPerByteShared = 0.04;
  static constexpr double kNsPerCachedByte = 0.02;
  static constexpr double kCacheBytes = 16e6;
  // Of what computing takes less than reading (or the other way round), this part is not hidden behind it.
  static constexpr double kNotHidden = 0.5;
  // A multiply-add; one element of K or V that is loaded in place, or packed; mask, maximum and exponential
  // of a logit.
  static constexpr double kNsPerMacInPlace = 0.0195;
  static constexpr double kNsPerMacPacked = 0.0188;
  static constexpr double kNsPerElementInPlace = 0.035;
  static constexpr double kNsPerElementPacked = 0.17;
  static constexpr double kNsPerLogitInPlace = 0.4;
  static constexpr double kNsPerLogitPacked = 0.25;
  // One element of a partial state: set up, written, read again and merged. Sharing at 64 to 4096 keys and 16
  // or 64 rows cost 2 to 5 ns an element more than its products, with two threads.
  static constexpr double kNsPerPartialElement = 3.0;
  // What sharing must gain on top, so that small gains, which noise and the model's error swallow, are left.
  static constexpr double kMargin = 100000.0;
  // K and V of so many bytes are in the caches that KV heads read one by one as fast as side by side (at 1 x
  // 1024 keys in fp32 and bf16 equal; at 1 x 8192, one by one takes 1.4 times as long).
  static constexpr double kHeadsApartBytes = 8.5e6;
  // Sharing must promise to cost at most this part of not sharing: the model is not exact, and sharing must
  // not lose.
  static constexpr double kSharingPays = 0.93;

  double elements;     // of K and V of one key and KV head
  double element_size; // bytes
  double group;
  double ns_per_byte; // from memory

  Cost(const Shape& shape, int64_t threads)
      : elements(static_cast<double>(shape.dim_qk + shape.dim_vo)),
        element_size(shape.kv_dtype == RK_FP32 ? 4.0 : 2.0), group(static_cast<double>(shape.group)),
        ns_per_byte(larger(kNsPerByteAlone, kNsPerByteShared * static_cast<double>(threads))) {}

  static double larger(double a, double b) { return a > b ? a : b; }

  // One key of one KV head against `rows` rows; `resident` when the last-level cache holds it.
  double key(double rows, bool packed, bool resident) const {
    const double m = rows * group;
    const double read = elements * element_size * (resident ? kNsPerCachedByte : ns_per_byte);
    const double compute =
        packed ? elements * (kNsPerElementPacked + m * kNsPerMacPacked) + m * kNsPerLogitPacked
               : elements * (kNsPerElementInPlace + m * kNsPerMacInPlace) + m * kNsPerLogitInPlace;
    return read > compute ? read + kNotHidden * compute : compute + kNotHidden * read;
  }

  // States of `rows` rows and all query heads that go through memory once.
  double partial(double rows, const Shape& shape) const {
    return kNsPerPartialElement * rows * static_cast<double>(shape.qo_heads * shape.dim_vo);
  }
};

} // namespace rk

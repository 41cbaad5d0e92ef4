// The planner's cost model: how long work takes, in nanoseconds of one thread. All coefficients are here.
//
// Measured with AVX-512 on a two-core AMD Zen 4 machine (32 MiB last-level cache, 16 GB/s a thread); only
// their ratios matter to the planner.
#pragma once
#include "plan.hpp"

namespace rk {

struct Cost {
  // Bytes of K and V that one thread streams from memory, and from the last-level cache.
  static constexpr double kNsPerByte = 0.075;
  static constexpr double kNsPerCachedByte = 0.03;
  static constexpr double kCacheBytes = 16e6;
  // Multiply-adds of the two kernels, and packing one element of K or V.
  static constexpr double kNsPerRowMac = 0.025;
  static constexpr double kNsPerPackedMac = 0.0125;
  static constexpr double kNsPerPackedElement = 0.25;
  // Exponential, mask and maximum of one logit.
  static constexpr double kNsPerLogit = 0.35;
  // Starting an item and finishing one (row, head): load the query, divide, write.
  static constexpr double kNsPerItem = 400.0;
  static constexpr double kNsPerRowHead = 60.0;
  // One (row, head) of one partial state: written, read again and merged, per element.
  static constexpr double kNsPerPartialElement = 0.4;

  double elements;     // of K and V of one key and KV head
  double element_size; // bytes
  double group;

  explicit Cost(const Shape& shape)
      : elements(static_cast<double>(shape.dim_qk + shape.dim_vo)),
        element_size(shape.kv_dtype == RK_FP32 ? 4.0 : 2.0), group(static_cast<double>(shape.group)) {}

  // One key of one KV head against `rows` rows; `resident` when the cache holds it.
  double key_in_place(double rows, bool resident) const {
    const double memory = elements * element_size * (resident ? kNsPerCachedByte : kNsPerByte);
    const double compute = rows * group * (elements * kNsPerRowMac + kNsPerLogit);
    return memory > compute ? memory : compute;
  }
  double key_packed(double rows) const {
    return elements * kNsPerPackedElement + rows * group * (elements * kNsPerPackedMac + kNsPerLogit);
  }
  double key(double rows, bool packed, bool resident) const {
    return packed ? key_packed(rows) : key_in_place(rows, resident);
  }
};

} // namespace rk

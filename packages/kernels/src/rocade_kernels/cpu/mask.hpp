// The one place in C++ that knows which key a row sees: an interval of positions, and bits of a custom mask.
#pragma once
#include "isa.hpp"
#include "plan.hpp"

namespace rk::RK_ISA_NAMESPACE {

constexpr float kNegativeInfinity = -__builtin_inff();

// Half-open range of global key positions.
struct KeyRange {
  int32_t begin, end;
};

RK_INLINE int32_t clamp(int64_t x, int32_t low, int32_t high) {
  return x < low ? low : x > high ? high : static_cast<int32_t>(x);
}

// Keys in `within` that a row at `position` may see by rule. Empty ranges have begin >= end.
RK_INLINE KeyRange visible_keys(const Shape& shape, int64_t position, KeyRange within) {
  KeyRange seen = within;
  if (shape.window_left >= 0)
    seen.begin = clamp(position - shape.window_left, within.begin, within.end);
  if (shape.mask == RK_MASK_CAUSAL)
    seen.end = clamp(position + 1, within.begin, within.end);
  return seen;
}

// Packed bits of one request's rows: bit i * kv_len + j, little-endian in bytes.
struct CustomMask {
  const uint8_t* bits; // null: none
  int64_t kv_len;

  RK_INLINE bool sees(int64_t row, int64_t key) const {
    const int64_t bit = row * kv_len + key;
    return bits[bit >> 3] >> (bit & 7) & 1;
  }
};

} // namespace rk::RK_ISA_NAMESPACE

// Scalar helpers that instruction rows are written with: the ISA manual's functions, one lane at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "convert.hpp"
#include "lanes.hpp"

namespace emu {

inline f32 absolute(f32 x) { return std::fabs(x); }
inline f64 absolute(f64 x) { return std::fabs(x); }
inline f16 absolute(f16 x) { return std::fabs(x.value); }
inline bf16 absolute(bf16 x) { return std::fabs(x.value); }
inline RawHalf absolute(RawHalf x) { return {static_cast<u16>(x.bits & 0x7fff)}; }
inline f32 negate(f32 x) { return -x; }
inline f64 negate(f64 x) { return -x; }
inline f16 negate(f16 x) { return -x.value; }
inline bf16 negate(bf16 x) { return -x.value; }
inline RawHalf negate(RawHalf x) { return {static_cast<u16>(x.bits ^ 0x8000)}; }

// Transcendental units flush f32 denormals on both sides.
inline f32 flush(f32 x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// 2^x rounded from f64: a polynomial of the fraction, whose error is 2^-37, times the whole power.
// Branch-free, so that loops vectorise.
inline f32 exp2_float(f32 x) {
  constexpr f64 kRound = 0x1.8p52; // adding it leaves the nearest integer in the low bits
  f64 clamped = x < -200 ? -200.0 : x > 200 ? 200.0 : f64{x};
  f64 shifted = clamped + kRound, r = clamped - (shifted - kRound);
  f64 sum = 1.0178086009239699e-7; // ln(2)^k / k! from k = 9 down
  sum = sum * r + 1.3215486790144307e-6;
  sum = sum * r + 1.5252733804059841e-5;
  sum = sum * r + 1.5403530393381608e-4;
  sum = sum * r + 1.3333558146428443e-3;
  sum = sum * r + 9.6181291076284772e-3;
  sum = sum * r + 5.5504108664821580e-2;
  sum = sum * r + 2.4022650695910072e-1;
  sum = sum * r + 6.9314718055994531e-1;
  sum = sum * r + 1.0;
  u64 power = (std::bit_cast<u64>(shifted) << 52) + std::bit_cast<u64>(1.0);
  return static_cast<f32>(sum * std::bit_cast<f64>(power));
}

// A NaN whose quiet bit is clear. f16 values travel as f32, where that bit has the same place in the
// fraction.
inline bool is_signalling(f32 x) {
  u32 bits = std::bit_cast<u32>(x) & 0x7fffffffu;
  return bits > 0x7f800000u && bits < 0x7fc00000u;
}
inline bool is_signalling(f64 x) {
  u64 bits = std::bit_cast<u64>(x) & ~(u64{1} << 63);
  return bits > 0x7ff0000000000000u && bits < 0x7ff8000000000000u;
}
// What minimum and maximum give when a NaN is among their operands: in IEEE mode a signalling one wins, made
// quiet; else the number wins. `ordered` is the result for numbers. Without branches, as loops vectorise so.
template <class F> F pick_number(F a, F b, F ordered) {
  F picked = a != a ? b : b != b ? a : ordered;
  picked = is_signalling(b) ? b + b : picked;
  return is_signalling(a) ? a + a : picked;
}

// IEEE-754-2008 minNum/maxNum with -0 < +0.
template <class F> F min_float(F a, F b) {
  return pick_number(a, b, a < b || (a == b && std::signbit(a)) ? a : b);
}
template <class F> F max_float(F a, F b) {
  return pick_number(a, b, a > b || (a == b && !std::signbit(a)) ? a : b);
}
template <class F> F median(F a, F b, F c) {
  if (a != a || b != b || c != c)
    return min_float(min_float(a, b), c);
  F largest = max_float(max_float(a, b), c);
  return largest == a ? max_float(b, c) : largest == b ? max_float(a, c) : max_float(a, b);
}
template <class I> I median_int(I a, I b, I c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

// Float to integer saturates, truncates, and turns NaN into 0.
template <class I, class F> I to_int(F x) {
  if (x != x)
    return 0;
  if (x <= static_cast<F>(std::numeric_limits<I>::min()))
    return std::numeric_limits<I>::min();
  if (x >= static_cast<F>(std::numeric_limits<I>::max()))
    return std::numeric_limits<I>::max();
  return static_cast<I>(x);
}

// Less than one, though x - floor(x) rounds to one for tiny negative x.
template <class F> F fract(F x, F below_one = sizeof(F) == 4 ? F(0x1.fffffep-1) : F(0x1.fffffffffffffp-1)) {
  return std::min(x - std::floor(x), below_one);
}
template <class F> i32 frexp_exponent(F x) {
  if (!std::isfinite(x) || x == 0)
    return 0;
  int e;
  std::frexp(x, &e);
  return e;
}
template <class F> F frexp_mantissa(F x) {
  if (!std::isfinite(x))
    return x;
  int e;
  return std::frexp(x, &e);
}

// The argument counts turns, not radians.
inline f64 angle_of(f32 turns) {
  return 6.283185307179586 * std::copysign(f64{turns} - std::trunc(f64{turns}), turns);
}
inline f32 sin_turns(f32 x) { return static_cast<f32>(std::sin(angle_of(x))); }
inline f32 cos_turns(f32 x) { return static_cast<f32>(std::cos(angle_of(x))); }

inline i32 signed24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }

inline u32 reverse_bits(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}

inline u32 bitfield(u32 x, u32 offset, u32 width) {
  width &= 31;
  return width == 0 ? 0 : x >> (offset & 31) & ((1u << width) - 1);
}
// A field that reaches past bit 31 goes on with copies of the sign.
inline i32 bitfield_signed(i32 x, u32 offset, u32 width) {
  u32 field = static_cast<u32>(x >> (offset & 31)), w = width & 31;
  return w == 0 ? 0 : static_cast<i32>(field << (32 - w)) >> (32 - w);
}

// v_perm_b32: byte `select` of {a, b} with b in the low half; 8..11 replicate a sign, 12 is 0x00, above is
// 0xff.
inline u32 permute_byte(u32 a, u32 b, u32 select) {
  u64 data = u64{a} << 32 | b;
  if (select >= 13)
    return 0xff;
  if (select == 12)
    return 0;
  if (select >= 8)
    return data >> ((select - 8) * 16 + 15) & 1 ? 0xff : 0;
  return data >> select * 8 & 0xff;
}
inline u32 permute_bytes(u32 a, u32 b, u32 selectors) {
  u32 out = 0;
  for (int i = 0; i < 4; ++i)
    out |= permute_byte(a, b, selectors >> i * 8 & 0xff) << i * 8;
  return out;
}

// IEEE-754-2019 minimum and maximum: a NaN wins.
template <class F> F minimum(F a, F b) {
  return a != a || b != b ? std::numeric_limits<F>::quiet_NaN() : min_float(a, b);
}
template <class F> F maximum(F a, F b) {
  return a != a || b != b ? std::numeric_limits<F>::quiet_NaN() : max_float(a, b);
}

template <class Small> Small saturate(i32 x) {
  return static_cast<Small>(
      std::clamp<i32>(x, std::numeric_limits<Small>::min(), std::numeric_limits<Small>::max()));
}
inline u16 pack_bytes(int lo, int hi) { return static_cast<u16>((lo & 0xff) | (hi & 0xff) << 8); }

template <class Byte> i32 dot_bytes(u32 a, u32 b) {
  i32 sum = 0;
  for (int k = 0; k < 32; k += 8)
    sum += static_cast<Byte>(a >> k) * static_cast<Byte>(b >> k);
  return sum;
}
// Eight 4-bit numbers; I is i32 or u32 and says whether they have a sign.
template <class I> I dot_nibbles(u32 a, u32 b) {
  I sum = 0;
  for (int k = 0; k < 32; k += 4)
    sum += (static_cast<I>(a << (28 - k)) >> 28) * (static_cast<I>(b << (28 - k)) >> 28);
  return sum;
}

// Sum of the absolute differences of four bytes, of two halves; a masked one skips bytes whose reference is
// 0.
inline u32 difference(u32 a, u32 b) { return a > b ? a - b : b - a; }
inline u32 byte_differences(u32 a, u32 b, bool masked = false) {
  u32 sum = 0;
  for (int k = 0; k < 32; k += 8)
    if (!masked || (b >> k & 0xff))
      sum += difference(a >> k & 0xff, b >> k & 0xff);
  return sum;
}
inline u32 half_differences(u32 a, u32 b) {
  return difference(a & 0xffff, b & 0xffff) + difference(a >> 16, b >> 16);
}
// Average of bytes; the low bit of each byte of `round` rounds up.
inline u32 byte_average(u32 a, u32 b, u32 round) {
  u32 out = 0;
  for (int k = 0; k < 32; k += 8)
    out |= ((a >> k & 0xff) + (b >> k & 0xff) + (round >> k & 1)) >> 1 << k;
  return out;
}
inline u32 set_byte(u32 word, u32 place, u32 byte) {
  u32 shift = (place & 3) * 8;
  return (word & ~(0xffu << shift)) | byte << shift;
}

// Numbers from -1 (or 0) to 1 as 16-bit integers.
inline i16 signed_norm(f32 x) {
  return static_cast<i16>(std::nearbyint(std::clamp(x != x ? 0.0f : x, -1.0f, 1.0f) * 32767));
}
inline u16 unsigned_norm(f32 x) {
  return static_cast<u16>(std::nearbyint(std::clamp(x != x ? 0.0f : x, 0.0f, 1.0f) * 65535));
}

// f32 to f16 rounding toward zero: round to nearest, then step back if that went away from zero.
inline u16 half_toward_zero(f32 x) {
  u16 h = float_to_half(x);
  bool finite = std::isfinite(x);
  return finite && std::fabs(half_to_float(h)) > std::fabs(x) ? static_cast<u16>(h - 1) : h;
}

// Last step of a division a = approximate quotient of c / b: special cases of the operands decide.
template <class F> F div_fixup(F a, F b, F c) {
  constexpr F kInf = std::numeric_limits<F>::infinity();
  F sign = std::signbit(b) != std::signbit(c) ? F(-1) : F(1);
  if (c != c)
    return c;
  if (b != b)
    return b;
  if ((b == 0 && c == 0) || (std::fabs(b) == kInf && std::fabs(c) == kInf))
    return -std::numeric_limits<F>::quiet_NaN();
  if (b == 0 || std::fabs(c) == kInf)
    return sign * kInf;
  if (std::fabs(b) == kInf || c == 0)
    return sign * F(0);
  return std::copysign(a, sign);
}

// f16 fused multiply-add rounded once: the exact product and sum fit f64 but for ties that f64 itself would
// round, which round-to-odd in f64 avoids.
inline f16 fma_half(f32 a, f32 b, f32 c) {
  f64 product = f64{a} * b, sum = product + c;
  if (!std::isfinite(sum))
    return static_cast<f32>(sum);
  f64 error = std::fabs(product) >= std::fabs(f64{c}) ? c - (sum - product) : product - (sum - c);
  u64 bits = std::bit_cast<u64>(sum);
  if (error != 0 && !(bits & 1)) {
    bool away = (error > 0) == (sum > 0);
    bits = away ? bits | 1 : (bits - 1) | 1;
    sum = std::bit_cast<f64>(bits);
  }
  // f64 -> f32 with the sticky bit kept, so that the last rounding to f16 sees it.
  f32 narrow = static_cast<f32>(sum);
  if (narrow != sum && std::isfinite(narrow)) {
    u32 n = std::bit_cast<u32>(narrow);
    if (std::fabs(f64{narrow}) > std::fabs(sum))
      --n;
    narrow = std::bit_cast<f32>(n | 1);
  }
  return narrow;
}

} // namespace emu

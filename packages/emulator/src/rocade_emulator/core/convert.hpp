// Conversions between f32 and the 16-bit floats, exact or rounded to nearest even, branch-free so that loops
// vectorise.
#pragma once

#include "types.hpp"

namespace emu {

inline f32 half_to_float(u16 h) {
  u32 magnitude = h & 0x7fffu;
  // Read as an f32 with the half's exponent field, then scaled by 2^112, the difference of the two biases;
  // this is exact for normals and denormals alike. Infinity and NaN get the f32 exponent of all ones.
  u32 scaled = std::bit_cast<u32>(std::bit_cast<f32>(magnitude << 13) * std::bit_cast<f32>(0x77800000u));
  u32 special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<f32>(scaled | special | u32{h & 0x8000u} << 16);
}

inline u16 float_to_half(f32 value) {
  u32 bits = std::bit_cast<u32>(value), x = bits & 0x7fffffffu;
  u32 normal = (x + 0xc8000fffu + (x >> 13 & 1)) >> 13; // rebias by -112, round to nearest even
  // Below 2^-14: adding 0.5 moves the value to units of 2^-24 and rounds it there.
  u32 denormal = std::bit_cast<u32>(std::bit_cast<f32>(x) + 0.5f) - 0x3f000000u;
  u32 special = x > 0x7f800000u ? 0x7e00u | (x >> 13 & 0x3ffu) : 0x7c00u;
  u32 result = x >= 0x47800000u ? special : x < 0x38800000u ? denormal : normal;
  return static_cast<u16>(result | (bits >> 16 & 0x8000u));
}

inline f32 bfloat_to_float(u16 b) { return std::bit_cast<f32>(u32{b} << 16); }

inline u16 float_to_bfloat(f32 value) {
  u32 x = std::bit_cast<u32>(value);
  u32 rounded = (x + 0x7fffu + (x >> 16 & 1)) >> 16;
  u32 quiet = x >> 16 | 0x40u;
  return static_cast<u16>((x & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

} // namespace emu

// How loaded bytes fill registers and registers give stored bytes; packed values of atomics. LDS and vector
// memory share it.
#pragma once

#include <cstring>

#include "convert.hpp"
#include "wave.hpp"

namespace emu {

// Narrow loads: into the whole register, or into one half of it with the other half kept (d16).
enum class Fill : u8 { Whole, Zero, Signed, LowZero, LowSigned, HighZero, HighSigned };

inline bool keeps_half(Fill f) { return f >= Fill::LowZero; }

inline u32 fill_register(Fill f, u32 bytes, u32 raw, u32 old) {
  u32 shift = 32 - 8 * bytes;
  u32 narrow = f == Fill::Signed || f == Fill::LowSigned || f == Fill::HighSigned
                   ? static_cast<u32>(static_cast<i32>(raw << shift) >> shift)
                   : raw;
  switch (f) {
  case Fill::LowZero:
  case Fill::LowSigned:
    return (old & 0xffff0000u) | (narrow & 0xffffu);
  case Fill::HighZero:
  case Fill::HighSigned:
    return (old & 0xffffu) | narrow << 16;
  default:
    return narrow;
  }
}

// Put `bytes` loaded bytes of one lane into its registers.
inline void load_lane(Wave& w, int reg, int lane, const u8* from, u32 bytes, Fill fill) {
  if (bytes >= 4) {
    for (u32 k = 0; k < bytes / 4; ++k)
      std::memcpy(&w.v[reg + static_cast<int>(k)][lane], from + 4 * k, 4);
    return;
  }
  u32 raw = 0;
  std::memcpy(&raw, from, bytes);
  w.v[reg][lane] = fill_register(fill, bytes, raw, w.v[reg][lane]);
}

inline void store_lane(const Wave& w, int reg, int lane, u8* to, u32 bytes, u32 shift) {
  if (bytes >= 4) {
    for (u32 k = 0; k < bytes / 4; ++k)
      std::memcpy(to + 4 * k, &w.v[reg + static_cast<int>(k)][lane], 4);
    return;
  }
  u32 raw = w.v[reg][lane] >> shift;
  std::memcpy(to, &raw, bytes);
}

// Two packed 16-bit floats, for the packed atomic adds.
struct Halves {
  u32 bits;
};
struct BHalves {
  u32 bits;
};
inline Halves add_halves(Halves a, Halves b) {
  u32 out = 0;
  for (int s : {0, 16}) {
    f32 sum = half_to_float(static_cast<u16>(a.bits >> s)) + half_to_float(static_cast<u16>(b.bits >> s));
    out |= u32{float_to_half(sum)} << s;
  }
  return {out};
}
inline BHalves add_halves(BHalves a, BHalves b) {
  u32 out = 0;
  for (int s : {0, 16}) {
    f32 sum = bfloat_to_float(static_cast<u16>(a.bits >> s)) + bfloat_to_float(static_cast<u16>(b.bits >> s));
    out |= u32{float_to_bfloat(sum)} << s;
  }
  return {out};
}

} // namespace emu

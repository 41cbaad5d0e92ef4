// The bits of Inst::modifiers, by format, and what they do to a floating-point result.
#pragma once

#include <array>

#include "meaning.hpp"

namespace emu {

struct Modifiers {
  // VOP3 and SDWA
  static constexpr u32 kClamp = 1u << 0;
  static constexpr u32 kDstHigh = 1u << 3; // op_sel[3]: write the high half, keep the low one
  // VOP3P
  static constexpr u32 kOpSelShift = 4;   // 3 bits: which half feeds the low result
  static constexpr u32 kOpSelHiShift = 7; // 3 bits: which half feeds the high result
  static constexpr u32 kNegHiShift =
      10; // 3 bits: negation for the high result (Operand::negate is the low one)
  // MFMA
  static constexpr u32 kCbszShift = 13;      // 3 bits
  static constexpr u32 kAbidShift = 16;      // 4 bits
  static constexpr u32 kBlgpShift = 20;      // 3 bits
  static constexpr u32 kKeepHigh = 1u << 19; // VOP3: a result of type Half in the low half
  // Memory
  static constexpr u32 kSc0 = 1u << 23; // returns the old value (atomics)
  static constexpr u32 kSc1 = 1u << 24;
  static constexpr u32 kNt = 1u << 25;
  static constexpr u32 kLds = 1u << 26; // direct-to-LDS
  static constexpr u32 kOffen = 1u << 27;
  static constexpr u32 kIdxen = 1u << 28;
  static constexpr u32 kSoffset = 1u << 29;   // SMEM: an SGPR offset is added
  static constexpr u32 kImmediate = 1u << 30; // SMEM: with kSoffset, an immediate offset beside the SGPR
  // SDWA destination
  static constexpr u32 kDstSelShift = 13;    // 3 bits, Select
  static constexpr u32 kDstUnusedShift = 16; // 2 bits: pad with 0, sign extend, preserve
  static constexpr u32 kSdwa = 1u << 31;
};

inline bool has(const Inst& i, u32 bit) { return i.modifiers & bit; }
inline u32 field(const Inst& i, u32 shift, u32 bits) { return i.modifiers >> shift & ((1u << bits) - 1); }

template <class T> void apply_output_modifiers(const Inst& i, std::array<T, kLanes>& values) {
  if (has(i, Modifiers::kClamp)) // dx10_clamp: NaN becomes 0
    for (auto& x : values)
      x = x > 0 ? T(x < 1 ? x : T(1)) : T(0);
}

} // namespace emu

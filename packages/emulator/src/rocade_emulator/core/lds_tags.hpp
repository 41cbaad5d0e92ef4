// What is remembered of each 4-byte cell of LDS, packed so that a few comparisons of words decide the usual
// cases.
#pragma once

#include "types.hpp"

namespace emu {

// One word for the last writers of a cell and one for its last readers. Two waves that touch a cell between
// the same two barriers (in one epoch), one of them writing, race, unless both are atomic or the write
// changes nothing.
struct LdsTag {
  u32 sequence = 0;    // of the operation in its workgroup, see Group::sequence; 0: none yet
  u16 waves = 0;       // a bit for each wave, of those in the epoch of the last one
  u8 bytes = 0;        // of the cell, that they touched in that epoch
  u8 defined = 0;      // writes: bytes ever written
  u8 last = 0;         // number of the last wave
  bool atomic = false; // by atomic operations
  bool landed = false; // by a direct-to-LDS load, which is over: there is no operation to wait for

  // As words: the sequence on top, so that words compare as sequences do. It keeps out of the sign bit.
  static constexpr int kSequence = 32, kBytes = 16, kDefined = 20, kLast = 24, kAtomic = 28, kLanded = 29;
  static constexpr u32 kMaxSequence = 0x7fffffff;
  static constexpr i64 kWaves = 0xffff;

  i64 word() const {
    return static_cast<i64>(u64{sequence} << kSequence | waves | u32{bytes} << kBytes |
                            u32{defined} << kDefined | u32{last} << kLast | u32{atomic} << kAtomic |
                            u32{landed} << kLanded);
  }
  static LdsTag of(i64 word) {
    auto bits = [&](int shift, u32 mask) { return static_cast<u32>(word >> shift) & mask; };
    return {bits(kSequence, ~0u),
            static_cast<u16>(word),
            static_cast<u8>(bits(kBytes, 15)),
            static_cast<u8>(bits(kDefined, 15)),
            static_cast<u8>(bits(kLast, 15)),
            bits(kAtomic, 1) != 0,
            bits(kLanded, 1) != 0};
  }
  // The largest word of an operation before `sequence`.
  static i64 before(u32 sequence) { return (i64{sequence} << kSequence) - 1; }
};

} // namespace emu

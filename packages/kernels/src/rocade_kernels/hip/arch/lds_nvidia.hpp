// Copies from global to shared memory, their waits, and the reads that matrix operands need, on NVIDIA.
#pragma once
#include "types.hpp"

namespace rocade {

inline constexpr int kCopyBytes = 16;
/// Reads of 16 bytes by neighbouring lanes are free of conflicts when they spread over this many bytes.
inline constexpr int kBankSpan = 128;

inline constexpr Transpose kTranspose = Transpose::matrices;

using LdsBytes = __attribute__((address_space(3))) char*;

/// Shared memory of the block; the launch says how much.
#define ROCADE_BLOCK_LDS(name, bytes)                                                                        \
  extern ROCADE_SHARED __attribute__((aligned(1024))) char name##_bytes[];                                   \
  const rocade::LdsBytes name = (rocade::LdsBytes)name##_bytes

template <class V> ROCADE_DEVICE V read_lds(LdsBytes from) {
  return *(__attribute__((address_space(3))) const V*)from;
}
template <class V> ROCADE_DEVICE void write_lds(LdsBytes to, V value) {
  *(__attribute__((address_space(3))) V*)to = value;
}

ROCADE_DEVICE u32 lds_address(LdsBytes at) { return static_cast<u32>(reinterpret_cast<u64>(at)); }

/// `at` with other bits. One instruction, where an address that is rearranged and then a sum takes three.
ROCADE_DEVICE LdsBytes flipped(LdsBytes at, u32 bits) {
  return reinterpret_cast<LdsBytes>(static_cast<u64>(lds_address(at) ^ bits));
}

/// What `copy_to_lds` is given as `part`, where this wave's share begins at `begin`: of each lane.
inline constexpr bool kPartOfLane = true;
ROCADE_DEVICE u32 copy_part(u32 begin) { return kept(begin + 16 * lane_id()); }

/// Starts a copy of 16 bytes a lane, if it is wanted: lane L's go to `to` + kOffset + 16 L, from where the
/// wave's share begins.
template <int kOffset> ROCADE_DEVICE void copy_to_lds(bool wanted, LdsBytes to, u32 part, const void* from) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;\n\t"
               "@p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(lds_address(to) + part + kOffset),
               "l"(from), "r"(static_cast<u32>(wanted))
               : "memory");
}

/// Copies are counted in groups, which may be empty.
inline constexpr bool kCopyGroups = true;

/// Ends a group of copies, which `copies_done` counts.
ROCADE_DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until all copies of this thread are in LDS but those of its newest `kTiles` groups; a barrier must
/// follow before others read them.
template <int kTiles, int> ROCADE_DEVICE void copies_done() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kTiles) : "memory");
}

/// ldmatrix.x4: lane L gives the address of row L % 8 of the 8 x 8 matrix L / 8.
template <class T> ROCADE_DEVICE Vector<T, 8> read_operand(LdsBytes from) {
  u32 a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(lds_address(from))
               : "memory");
  return bits_as<Vector<T, 8>>(Vector<u32, 4>{a, b, c, d});
}

/// The same, each matrix transposed.
template <class Operand> ROCADE_DEVICE Operand read_transposed(LdsBytes from) {
  u32 a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(lds_address(from))
               : "memory");
  return bits_as<Operand>(Vector<u32, 4>{a, b, c, d});
}

/// The low, or the high, 16 bits of two words, in one word.
ROCADE_DEVICE u32 low_halves(u32 first, u32 second) { return (first & 0xffff) | second << 16; }
ROCADE_DEVICE u32 high_halves(u32 first, u32 second) { return first >> 16 | (second & 0xffff0000); }

} // namespace rocade

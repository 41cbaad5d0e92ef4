// Copies from global memory straight to LDS, their waits, and the reads of LDS that matrix operands need, on
// AMD.
#pragma once
#include "types.hpp"

namespace rocade {

/// Bytes that one lane of a direct copy moves.
inline constexpr int kCopyBytes = kTarget.max_direct_to_lds_bits / 8;
/// Reads of 16 bytes by neighbouring lanes are free of conflicts when they spread over this many bytes of
/// LDS.
inline constexpr int kBankSpan = kTarget.max_direct_to_lds_bits == 128 ? 256 : 128;

inline constexpr Transpose kTranspose =
    kTarget.max_direct_to_lds_bits == 128 ? Transpose::quads : Transpose::in_registers;

using LdsBytes = __attribute__((address_space(3))) char*;

/// LDS of the block: `name` is its first byte.
#define ROCADE_BLOCK_LDS(name, bytes)                                                                        \
  ROCADE_SHARED alignas(128) static char name##_bytes[bytes];                                                \
  const rocade::LdsBytes name = (rocade::LdsBytes)name##_bytes

template <class V> ROCADE_DEVICE V read_lds(LdsBytes from) {
  return *(__attribute__((address_space(3))) const V*)from;
}
template <class V> ROCADE_DEVICE void write_lds(LdsBytes to, V value) {
  *(__attribute__((address_space(3))) V*)to = value;
}

/// `at` with other bits.
ROCADE_DEVICE LdsBytes flipped(LdsBytes at, u32 bits) {
  return reinterpret_cast<LdsBytes>(reinterpret_cast<u32>(at) ^ bits);
}

/// What `copy_to_lds` is given as `part`, where this wave's share begins at `begin`: of the wave.
inline constexpr bool kPartOfLane = false;
ROCADE_DEVICE u32 copy_part(u32 begin) { return begin; }

/// Starts a copy of kCopyBytes a lane, which must be wanted: lane L's go to `to` + `part` + kOffset + L *
/// kCopyBytes. `to` and `part` are the same in all lanes. Lanes that are not active copy nothing. The
/// compiler does not see the copy: wait with `copies_done`.
template <int kOffset> ROCADE_DEVICE void copy_to_lds(bool, LdsBytes tile, u32 part, const void* from) {
  const LdsBytes to = tile + part;
  static_assert(kCopyBytes == 4 || kCopyBytes == 16);
  // One wait state between M0 and a global load to LDS (CDNA3 ISA, 4.5). The compiler sets M0 wherever it
  // needs it.
  if constexpr (kCopyBytes == 16)
    asm volatile("s_add_u32 m0, %1, %2\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %0, off" ::"v"(from), "s"(to),
                 "n"(kOffset)
                 : "memory", "scc");
  else
    asm volatile("s_add_u32 m0, %1, %2\n\ts_nop 0\n\tglobal_load_lds_dword %0, off" ::"v"(from), "s"(to),
                 "n"(kOffset)
                 : "memory", "scc");
}

/// Copies are counted one by one.
inline constexpr bool kCopyGroups = false;

/// Ends a group of copies, which `copies_done` counts: nothing to do here.
ROCADE_DEVICE void end_copies() {}

/// Waits until all copies of this wave are in LDS but those of its newest `kTiles` groups, of `kEach` copies
/// each; a barrier must follow before other waves read them. Other loads count, too: then it waits for more.
template <int kTiles, int kEach> ROCADE_DEVICE void copies_done() {
  constexpr int kCounter = 63; // what s_waitcnt can tell
  asm volatile("s_waitcnt vmcnt(%0)" ::"n"(kTiles * kEach < kCounter ? kTiles * kEach : kCounter) : "memory");
}

/// 16 bytes that are a lane's operand as they lie in LDS.
template <class T> ROCADE_DEVICE Vector<T, 8> read_operand(LdsBytes from) {
  return read_lds<Vector<T, 8>>(from);
}

/// ds_read_b64_tr_b16: 16 lanes read 4 rows of 16 elements, lane L 4 of row L / 4; lane L gets column L.
template <class Quad> ROCADE_DEVICE Quad read_transposed([[maybe_unused]] LdsBytes from) {
#if defined(__gfx950__)
  typedef short Raw __attribute__((ext_vector_type(4)));
  return bits_as<Quad>(__builtin_amdgcn_ds_read_tr16_b64_v4i16((__attribute__((address_space(3))) Raw*)from));
#else
  static_assert(sizeof(Quad) == 0, "this GPU has no ds_read_b64_tr_b16");
#endif
}

/// The low, or the high, 16 bits of two words, in one word.
ROCADE_DEVICE u32 low_halves(u32 first, u32 second) {
  return __builtin_amdgcn_perm(second, first, 0x05040100);
}
ROCADE_DEVICE u32 high_halves(u32 first, u32 second) {
  return __builtin_amdgcn_perm(second, first, 0x07060302);
}

} // namespace rocade

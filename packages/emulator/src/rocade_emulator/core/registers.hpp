// Reading and writing registers through operands: broadcast, sub-register selection, DPP, and stores under
// EXEC.
#pragma once

#include <cstring>

#include "modifiers.hpp"
#include "wave.hpp"

namespace emu {

// Raw contents of an operand in all lanes; `hi` only for two-register operands.
struct Fetched {
  alignas(64) u32 lo[kLanes];
  alignas(64) u32 hi[kLanes];
};

// A bit a lane, as words of 0 or 1, and as bytes of 0 or 1.
inline void spread(u64 mask, u32* row) {
  for (int half = 0; half < 2; ++half) {
    u32 bits = static_cast<u32>(mask >> 32 * half);
    for (int l = 0; l < 32; ++l)
      row[32 * half + l] = bits >> l & 1;
  }
}
using Flags = u8[kLanes];
inline u64 mask_of(const Flags& flags) {
  u64 mask = 0;
  for (int k = 0; k < kLanes / 8; ++k) {
    u64 bytes;
    std::memcpy(&bytes, flags + 8 * k, 8);
    mask |= (bytes * 0x0102040810204080u >> 56) << 8 * k; // byte j moves to bit 56 + j
  }
  return mask;
}

u32 read_scalar(const Wave& w, const Operand& op);
u64 read_scalar64(const Wave& w, const Operand& op);
void write_scalar(Wave& w, const Operand& dst, u32 value);
void write_scalar64(Wave& w, const Operand& dst, u64 value);

void fetch_raw(const Wave& w, const Operand& op, int regs, Fetched& out);

// Store rows into the destination's registers in `lanes`, honouring SDWA destination selection and op_sel[3].
void store_rows(Wave& w, const Inst& i, const u32* lo, const u32* hi, u64 lanes);

// Permute a fetched source by DPP; returns the lanes that get a result.
u64 apply_dpp(const Dpp& dpp, u64 exec, Fetched& source);

} // namespace emu

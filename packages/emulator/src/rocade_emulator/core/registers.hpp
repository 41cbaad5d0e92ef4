// Reading and writing registers through operands: broadcast, sub-register selection, DPP, and stores under EXEC.
#pragma once

#include "modifiers.hpp"
#include "wave.hpp"

namespace emu {

// Raw contents of an operand in all lanes; `hi` only for two-register operands.
struct Fetched {
  alignas(64) u32 lo[kLanes];
  alignas(64) u32 hi[kLanes];
};

u32 read_scalar(const Wave& w, const Operand& op);
u64 read_scalar64(const Wave& w, const Operand& op);
void write_scalar(Wave& w, const Operand& dst, u32 value);
void write_scalar64(Wave& w, const Operand& dst, u64 value);

void fetch_raw(const Wave& w, const Operand& op, int regs, Fetched& out);

// Store rows into the destination's registers in `lanes`, honouring SDWA destination selection and op_sel[3].
void store_rows(Wave& w, const Inst& i, const u32* lo, const u32* hi, u64 lanes);

// Permute a fetched source by DPP; returns the lanes that get a result.
u64 apply_dpp(const Dpp& dpp, u64 exec, Fetched& source);

}  // namespace emu

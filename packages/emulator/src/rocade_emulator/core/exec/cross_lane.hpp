// Vector instructions that are no plain lane functions: they move data between lanes or scalars.
#pragma once

#include "registers.hpp"
#include "table.hpp"

namespace emu {

void v_nop(Wave& w, const Inst& i);
void v_readfirstlane_b32(Wave& w, const Inst& i);
void v_readlane_b32(Wave& w, const Inst& i);
void v_writelane_b32(Wave& w, const Inst& i);
void v_swap_b32(Wave& w, const Inst& i);
void v_permlane16_swap_b32(Wave& w, const Inst& i);
void v_permlane32_swap_b32(Wave& w, const Inst& i);
void v_mbcnt_lo_u32_b32(Wave& w, const Inst& i);
void v_mbcnt_hi_u32_b32(Wave& w, const Inst& i);

OpInfo cross_lane_row(const char* name, Format format, int opcode, Target target, Exec exec);

} // namespace emu

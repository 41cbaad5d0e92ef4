// LDS of a workgroup: bounds, who wrote what since the last barrier, and direct-to-LDS loads in flight.
#pragma once

#include "group.hpp"

namespace emu {

enum class Access : u8 { Read, Write, Atomic };

// Check one lane's access; returns the bytes, or nullptr when it is out of bounds (reported). `data` is what a Write
// will store: waves may store the same value to the same place.
u8* touch_lds(Wave& w, const Inst& i, int lane, u32 address, u32 bytes, Access access, const u8* data = nullptr);

// Keep the data of a direct-to-LDS load until vmcnt retires it; `land_staged` writes it.
u32 stage_lds(Wave& w, StagedLds&& staged);
void land_staged(Wave& w, const InFlight& f);

}  // namespace emu

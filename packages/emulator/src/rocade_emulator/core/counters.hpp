// Counting of memory traffic. Bank conflicts and coalescing are models; docs/pages/emulator.md states them.
#pragma once

#include "wave.hpp"

namespace emu {

// LDS: `addresses` of the active lanes, `bytes` each.
void count_lds(Wave& w, const u32* addresses, u32 bytes);
// Global: distinct cache lines touched by one instruction.
void count_global(Wave& w, const u64* addresses, u64 lanes, u32 bytes, bool write);

} // namespace emu

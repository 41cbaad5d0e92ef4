// Counting of memory traffic. Bank conflicts and coalescing are models; docs/pages/emulator.md states them.
#pragma once

#include "wave.hpp"

namespace emu {

// LDS: `addresses` of these lanes, `bytes` each. An atomic counts as a write.
enum class LdsUse : u8 { Read, Write };
void count_lds(Wave& w, const u32* addresses, u64 lanes, u32 bytes, LdsUse use);
// Private memory: `offsets` into the bytes of each lane. Dwords of the lanes lie side by side, as the
// hardware swizzles them.
void count_scratch(Wave& w, const u32* offsets, u64 lanes, u32 bytes, bool write);
// Global: distinct cache lines touched by one instruction, of placed addresses (memory.hpp).
void count_global(Wave& w, const u64* addresses, u64 lanes, u32 bytes, bool write);

} // namespace emu

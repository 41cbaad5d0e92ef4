// Addresses of vector memory instructions, and the checked access to memory that all of them use.
#pragma once

#include "modifiers.hpp"
#include "wave.hpp"

namespace emu {

enum class Space : u8 { Flat, Global, Scratch, Buffer };

// Opcode distance between the segments of FLAT in the instruction table.
inline constexpr int kSegment = 128;

struct Addresses {
  u64 at[kLanes];
  u64 lanes = 0;   // EXEC at issue
  u64 clamped = 0; // lanes that a buffer descriptor's range check turns into "reads 0, writes nothing"
};

template <Space kSpace> Addresses addresses_of(const Wave& w, const Inst& i, u32 bytes);

// One lane's bytes in device memory, or nullptr when out of bounds (reported).
u8* touch_memory(Wave& w, const Inst& i, int lane, u64 address, u32 bytes, bool write);

// Whether the lanes that reach memory lie in one range without holes, aligned, and nothing else is to be
// checked, so that they can go to their addresses without touch_memory.
bool plain_access(Wave& w, const Addresses& a, u32 bytes, bool write);

// Count an access. `plain`: what plain_access said. Lanes out of bounds are reported, not counted.
void count_memory(Wave& w, const Addresses& a, u32 bytes, bool plain, bool write);

// A load whose data goes to LDS at M0 + offset + lane * bytes when vmcnt retires it. Bytes and halves fill a
// dword.
void load_to_lds(Wave& w, const Inst& i, const Addresses& a, u32 bytes, bool is_signed);

} // namespace emu

// Program flow of a wave: code addresses, jumps, and stopping with an error.
#pragma once

#include "program.hpp"
#include "wave.hpp"

namespace emu {

u64 code_address(const Wave& w, u32 offset);

// Continue at a device address or a byte offset of the text; anything that is no instruction stops the run.
void jump_to_address(Wave& w, const Inst& i, u64 address);
void jump_to_offset(Wave& w, const Inst& i, i64 offset);

// Stop the launch: what went wrong, at this instruction. Never returns.
[[noreturn]] void fail(const Wave& w, const Inst& i, const std::string& what);

} // namespace emu

// Machine words to Inst. An encoding, operand or modifier that is not understood is an error, never a no-op.
#pragma once

#include <span>
#include <string>

#include "inst.hpp"
#include "program.hpp"

namespace emu {

struct DecodeError {
  u32 pc;
  std::string what;
};

// Decode one instruction at byte offset `pc` of `text`. Throws DecodeError.
Inst decode_one(std::span<const u32> text, u32 pc, Target target);

// Decode a whole text section. Words that no instruction covers (padding after s_endpgm, data) are left out:
// running into one is an error of the run. Throws only when `strict`.
Program decode_text(std::span<const u32> text, Target target, bool strict);

} // namespace emu

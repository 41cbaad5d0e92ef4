// A decoded program: instructions in address order, found by byte offset.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "inst.hpp"

namespace emu {

struct Program {
  Target target = Target::Gfx942;
  std::vector<Inst> insts;              // in address order
  std::vector<i32> at_dword;            // text offset / 4 -> index into insts, -1 in the middle of one
  std::map<u32, std::string> undecoded; // byte offset -> why; an error only for a wave that gets there
  u64 base = 0;                         // device address of the text

  // Index of the instruction at a byte offset, or -1.
  i32 index_at(u64 offset) const {
    return offset % 4 || offset / 4 >= at_dword.size() ? -1 : at_dword[offset / 4];
  }
};

} // namespace emu

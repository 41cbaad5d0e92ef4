// The pieces of a run that launch.cpp, schedule.cpp and abi.cpp share.
#pragma once

#include <memory>

#include "group.hpp"
#include "launch.hpp"
#include "wave.hpp"

namespace emu {

// Issue clocks of one wave instruction on a 16-lane SIMD. Transcendental units are a quarter as wide on
// gfx942, half as wide on gfx950 (AMD CDNA 4 white paper: twice the rate).
inline constexpr u64 kValuCycles = 4, kSaluCycles = 4;
inline constexpr u64 trans_cycles(Target t) { return t == Target::Gfx950 ? 8 : 16; }

// How a wave starts, from the kernel's descriptor.
struct Entry {
  u32 pc = 0; // instruction index
  u64 kernarg = 0, dispatch_packet = 0;
  u32 user_sgprs = 0; // EMU_SGPR_* bits
  u32 kernarg_preload = 0;
  u32 workgroup_ids = 0, workitem_ids = 0;
  u32 lds_bytes = 0, scratch_bytes = 0;
};

// `executed` counts by instruction index; count_issue turns it into counters.
void step(Wave& w, Launch& launch, u64* executed);
void count_issue(Counters& c, Target target, const Inst& i, u64 times);

std::unique_ptr<Group> make_group(Launch& launch, const Entry& entry, u64 number);

// Run the whole grid. Returns false and sets launch.error when it stopped.
bool run_grid(Launch& launch, const Entry& entry);

} // namespace emu

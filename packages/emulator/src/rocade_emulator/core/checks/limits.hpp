// Registers beyond those that the kernel's descriptor allocates. Which instructions name one is known before
// the run.
#pragma once

#include "inst.hpp"

namespace emu {

struct Launch;
struct Wave;

// Registers of one wave; 0 vector ones: not known, so that nothing is beyond them.
struct Allocation {
  u32 vgprs = 0;        // VGPRs and AGPRs together
  u32 accum_offset = 0; // where the AGPRs begin; 0: there are none
  u32 sgprs = 0;
};

// Fill Launch::beyond.
void find_beyond(Launch& launch, const Allocation& has);

void report_beyond(Wave& w, const Inst& i, Launch& launch);

} // namespace emu

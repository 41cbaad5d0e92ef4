// Memory operations in flight: issue, retirement by a counter wait, and what retirement does.
#pragma once

#include "wave.hpp"

namespace emu {

// Record a vector memory or LDS operation whose destination registers become readable when it retires.
void issue_vm(Wave& w, const InFlight& f);
void issue_lgkm(Wave& w, InFlight f);
// A FLAT operation: counted in both.
void issue_flat(Wave& w, InFlight f);

// s_waitcnt: retire all but the newest `vm` / `lgkm` operations. With an SMEM in flight only lgkm == 0
// retires it.
void wait_vm(Wave& w, u32 vm);
void wait_lgkm(Wave& w, u32 lgkm);

} // namespace emu

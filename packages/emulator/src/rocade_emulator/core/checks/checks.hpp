// What is looked at around every instruction, from its declared uses: registers still in flight, registers never
// written, and wait states that the hardware does not insert. Meanings stay free of all this.
#pragma once

#include "launch.hpp"
#include "wave.hpp"

namespace emu {

void check_before(Wave& w, const Inst& i, Launch& launch);
void mark_after(Wave& w, const Inst& i);

}  // namespace emu

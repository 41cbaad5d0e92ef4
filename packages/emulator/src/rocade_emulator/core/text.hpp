// Instructions as text, for reports, traces and listings.
#pragma once

#include <string>

#include "inst.hpp"

namespace emu {

std::string text_of(const Inst& i);

} // namespace emu

// Matrix instructions of gfx950 whose operands are 8-, 6- or 4-bit floats, chosen by cbsz and blgp (0 fp8, 1
// bf8, 2 fp6, 3 bf6, 4 fp4), with or without a scale for each 32 elements of k.
#pragma once

#include <cstring>

#include "inst.hpp"

namespace emu {

// Opcode distance in the table between an instruction and the same one behind a prefix with scales.
inline constexpr u32 kScaled = 128;

inline bool is_f8f6f4(const OpInfo& info) { return std::strstr(info.mnemonic, "f8f6f4"); }

} // namespace emu

// The instruction table: every mnemonic of every format, found by (format, opcode, target).
#pragma once

#include <span>
#include <vector>

#include "inst.hpp"

namespace emu {

// Rows of one format, in the order of its .inc file. Defined in exec/, one file per format.
std::vector<OpInfo> vop1_rows();
std::vector<OpInfo> vop2_rows();
std::vector<OpInfo> vop3_rows();
std::vector<OpInfo> scale_rows(); // VOP3 of gfx950
std::vector<OpInfo> vopc_rows();
std::vector<OpInfo> vop3p_rows();
std::vector<OpInfo> mfma_rows();
std::vector<OpInfo> f8f6f4_rows();
std::vector<OpInfo> sop1_rows();
std::vector<OpInfo> sop2_rows();
std::vector<OpInfo> sopk_rows();
std::vector<OpInfo> sopc_rows();
std::vector<OpInfo> sopp_rows();
std::vector<OpInfo> smem_rows();
std::vector<OpInfo> ds_rows();
std::vector<OpInfo> flat_rows();
std::vector<OpInfo> mubuf_rows();

// The meaning of an integer instruction with clamp, or nullptr when it has none.
Exec saturating(const char* mnemonic);

// nullptr when the target does not have the opcode.
const OpInfo* find_op(Format format, u32 opcode, Target target);

// Everything, for tests (collisions, round trips) and documentation.
std::span<const OpInfo> all_ops();

} // namespace emu

// Gathers the rows of all formats once and indexes them by opcode.
#include "table.hpp"

#include <array>

namespace emu {
namespace {

constexpr int kFormats = 15;
constexpr int kOpcodes = 1024;

struct Table {
  std::vector<OpInfo> rows;
  std::array<std::array<std::array<const OpInfo*, kOpcodes>, kFormats>, 2>
      index{}; // [target][format][opcode]

  Table() {
    for (auto make :
         {vop1_rows, vop2_rows, vop3_rows, scale_rows, vopc_rows, vop3p_rows, mfma_rows, f8f6f4_rows,
          sop1_rows, sop2_rows, sopk_rows, sopc_rows, sopp_rows, smem_rows, ds_rows, flat_rows, mubuf_rows}) {
      auto more = make();
      rows.insert(rows.end(), more.begin(), more.end());
    }
    for (const OpInfo& row : rows)
      for (Target t : {Target::Gfx942, Target::Gfx950})
        if (row.target == Target::Both || row.target == t)
          slot(row.format, row.opcode, t) = &row;
  }
  const OpInfo*& slot(Format f, u32 opcode, Target t) {
    return index[t == Target::Gfx950][static_cast<int>(f)][opcode % kOpcodes];
  }
};

Table& table() {
  static Table t;
  return t;
}

} // namespace

const OpInfo* find_op(Format format, u32 opcode, Target target) {
  return table().slot(format, opcode, target);
}

std::span<const OpInfo> all_ops() { return table().rows; }

} // namespace emu

// Decoder of the matrix instructions, which are VOP3P with other fields. Those with block scales have a first
// half, of 8 bytes, that names the scales.
#include <cstring>

#include "decode/reader.hpp"
#include "f8f6f4.hpp"

namespace emu {
namespace {

constexpr u32 kScalePrefix = 44;
constexpr int kLow[] = {0, 9, 18}; // where the codes of A, B and C stand

// VGPRs with a byte of each selected, by op_sel and op_sel_hi, low bit first.
void scale_prefix(Reader& r) {
  for (int k = 0; k < 2; ++k) {
    r.inst.src[3 + k] = r.source(r.bits1(kLow[k], 9), Type::B32);
    if (r.inst.src[3 + k].kind != Kind::Vector)
      r.fail("scales must be vector registers");
  }
  r.inst.op_sel = static_cast<u8>(r.bits0(11, 2) | r.bits1(27, 2) << 2);
  bool others = r.bits0(0, 8) || r.bits0(8, 3) || r.bits0(13, 3) || r.bits1(18, 9) || r.bits1(29, 3);
  r.reject(others, "field beside the scales");
  r.word0 = r.word(2);
  r.word1 = r.word(3);
  r.inst.size = 16;
}

Type operand_type(u32 format) { return format < 2 ? Type::B256 : format < 4 ? Type::B192 : Type::B128; }

// cbsz and blgp: types of A and B for the instructions that have a choice; for others, broadcasts.
void operand_formats(Reader& r, Type (&types)[2]) {
  const OpInfo& info = *r.inst.info;
  u32 formats[] = {r.bits0(8, 3), r.bits1(29, 3)};
  r.inst.cycles = r.target == Target::Gfx950 ? info.cycles_gfx950 : info.cycles;
  if (!is_f8f6f4(info)) {
    r.reject(formats[0], "cbsz");
    r.reject(formats[1], "blgp");
    return;
  }
  for (int k = 0; k < 2; ++k) {
    if (formats[k] > 4)
      r.fail("no such type of " + std::string(k ? "B (blgp)" : "A (cbsz)"));
    types[k] = operand_type(formats[k]);
  }
  if (formats[0] >= 2 && formats[1] >= 2)
    r.inst.cycles /= 2;
  r.inst.modifiers |= formats[0] << Modifiers::kCbszShift | formats[1] << Modifiers::kBlgpShift;
}

// Bits 59 and 60 put A and B into the accumulation registers, bit 15 C and D.
void accumulation_bits(Reader& r) {
  for (int k = 0; k < 2; ++k)
    if (r.bits1(27 + k, 1))
      r.inst.src[k].index += kAccBase;
  if (!r.bits0(15, 1))
    return;
  r.inst.dst.index += kAccBase;
  if (r.inst.src[2].kind == Kind::Vector)
    r.inst.src[2].index += kAccBase;
}

// Vector registers, or an inline constant that all elements take.
Operand addend(Reader& r) {
  const OpInfo& info = *r.inst.info;
  u32 code = r.bits1(18, 9);
  bool inline_constant = code >= 128 && code <= 248 && !(code >= 235 && code <= 239);
  if (code < 256 && !inline_constant)
    r.fail("C must be vector registers or an inline constant");
  return r.source(code, code >= 256 ? info.src[2] : info.src[0] == Type::F64 ? Type::F64 : Type::F32);
}

} // namespace

bool decode_matrix(Reader& r, u32 opcode) {
  bool scaled = opcode == kScalePrefix && r.target == Target::Gfx950;
  if (scaled) {
    scale_prefix(r);
    opcode = r.bits0(16, 16) == 0xd3ad ? kScaled + 45 : r.bits0(16, 16) == 0xd3ae ? kScaled + 46 : 0;
    if (!opcode)
      r.fail("scales without a matrix instruction that takes them");
  }
  const OpInfo* info = find_op(Format::Mfma, opcode, r.target);
  if (!info)
    return false;
  r.inst.info = info;
  r.inst.exec = info->exec;
  if (r.bits0(11, 4) != scaled)
    r.fail("unsupported abid");
  Type types[] = {info->src[0], info->src[1]};
  operand_formats(r, types);
  r.inst.dst = r.vector(r.bits0(0, 8), info->dst);
  for (int k = 0; k < 2; ++k) {
    r.inst.src[k] = r.source(r.bits1(kLow[k], 9), types[k]);
    if (r.inst.src[k].kind != Kind::Vector)
      r.fail("A and B must be vector registers");
  }
  r.inst.src[2] = addend(r);
  accumulation_bits(r);
  for (const Operand& source : r.inst.src)
    r.use(source, false, true);
  r.use(r.inst.dst, true, true);
  return true;
}

} // namespace emu

// Decoders of SOP1, SOP2, SOPK, SOPC, SOPP and SMEM.
#include "decode/reader.hpp"

namespace emu {
namespace {

void add_source(Reader& r, int k, u32 code) {
  r.inst.src[k] = r.source(code, r.inst.info->src[k]);
  r.use(r.inst.src[k], false);
}
void add_destination(Reader& r, u32 code) {
  if (r.inst.info->dst == Type::None)
    return;
  r.inst.dst = r.scalar(code, r.inst.info->dst);
  r.use(r.inst.dst, true);
}

// Instructions that read their old destination: conditional moves, bit sets, EXEC saves.
bool reads_destination(Format f, u32 opcode) {
  if (f == Format::Sop1)
    return opcode == 2 || opcode == 3 || (opcode >= 24 && opcode <= 27);
  return f == Format::Sopk && opcode != 0 && opcode < 16;
}

constexpr u32 kSetregImm = 20, kCall = 21, kLiteral = 255;

i64 branch_target(const Reader& r) { return i64{r.pc} + 4 + 4 * static_cast<i16>(r.inst.simm); }

bool branches(u32 opcode) { return opcode == 2 || (opcode >= 4 && opcode <= 9); }

} // namespace

void decode_sop2(Reader& r) {
  r.look_up(Format::Sop2, r.bits0(23, 7));
  add_source(r, 0, r.bits0(0, 8));
  add_source(r, 1, r.bits0(8, 8));
  add_destination(r, r.bits0(16, 7));
}

void decode_sop1(Reader& r) {
  u32 opcode = r.bits0(8, 8);
  r.look_up(Format::Sop1, opcode);
  if (r.inst.info->src[0] != Type::None)
    add_source(r, 0, r.bits0(0, 8));
  if (reads_destination(Format::Sop1, opcode))
    r.use(r.scalar(r.bits0(16, 7), r.inst.info->dst), false);
  add_destination(r, r.bits0(16, 7));
}

void decode_sopc(Reader& r) {
  r.look_up(Format::Sopc, r.bits0(16, 7));
  add_source(r, 0, r.bits0(0, 8));
  add_source(r, 1, r.bits0(8, 8));
}

void decode_sopk(Reader& r) {
  u32 opcode = r.bits0(23, 5);
  r.look_up(Format::Sopk, opcode);
  r.inst.simm = static_cast<u32>(static_cast<i32>(static_cast<i16>(r.bits0(0, 16))));
  u32 code = r.bits0(16, 7);
  if (opcode == kCall)
    r.inst.offset = branch_target(r);
  if (opcode == kSetregImm) {
    r.inst.src[0] = r.source(kLiteral, Type::B32);
  } else if (r.inst.info->src[0] != Type::None) {
    r.inst.src[0] = r.scalar(code, Type::B32);
    r.use(r.inst.src[0], false);
  } else if (reads_destination(Format::Sopk, opcode)) {
    r.use(r.scalar(code, Type::B32), false);
  }
  add_destination(r, code);
}

void decode_sopp(Reader& r) {
  u32 opcode = r.bits0(16, 7);
  r.look_up(Format::Sopp, opcode);
  r.inst.simm = r.bits0(0, 16);
  if (branches(opcode))
    r.inst.offset = branch_target(r);
}

void decode_smem(Reader& r) {
  r.second_word();
  u32 opcode = r.bits0(18, 8);
  r.look_up(Format::Smem, opcode);
  r.reject(r.bits0(15, 1), "nv");
  bool buffer = r.inst.info->src[0] == Type::B128;
  if (r.inst.info->src[0] != Type::None) {
    r.inst.src[0] = r.scalar(r.bits0(0, 6) * 2, buffer ? Type::B128 : Type::B64);
    r.use(r.inst.src[0], false);
  }
  add_destination(r, r.bits0(6, 7));
  bool immediate = r.bits0(17, 1), register_offset = r.bits0(14, 1);
  i32 offset = static_cast<i32>(r.bits1(0, 21) << 11) >> 11;
  if (immediate)
    r.inst.offset = offset;
  r.set_modifier(Modifiers::kImmediate, immediate);
  r.set_modifier(Modifiers::kSc0, r.bits0(16, 1));
  if (register_offset || !immediate) {
    u32 code = register_offset ? r.bits1(25, 7) : r.bits1(0, 7);
    if (!register_offset && r.inst.info->src[0] == Type::None)
      return;
    r.inst.src[1] = r.source(code, Type::B32);
    r.use(r.inst.src[1], false);
    r.set_modifier(Modifiers::kSoffset, true);
  }
}

} // namespace emu

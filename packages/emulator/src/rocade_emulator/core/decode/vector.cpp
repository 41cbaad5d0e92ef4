// Decoders of VOP1, VOP2, VOPC with their SDWA and DPP forms.
#include <cstring>

#include "decode/reader.hpp"

namespace emu {
namespace {

constexpr u32 kSdwaCode = 249, kDppCode = 250;

bool is_mask(Type t) { return t == Type::Mask; }
bool named(const Reader& r, const char* name) { return std::strcmp(r.inst.info->mnemonic, name) == 0; }

Operand vcc() {
  Operand op;
  op.kind = Kind::Scalar;
  op.index = kVccLo;
  op.count = 2;
  return op;
}

// SDWA selections that the hardware has: bytes, words, the dword (code 6).
Select selection(const Reader& r, u32 code) {
  constexpr Select kSelect[] = {Select::Byte0, Select::Byte1, Select::Byte2, Select::Byte3,
                                Select::Word0, Select::Word1, Select::Dword};
  if (code > 6)
    r.fail("reserved SDWA selection");
  return kSelect[code];
}

struct Sdwa {
  bool on = false;
  u32 word = 0;
  u32 bits(int low, int count) const { return word >> low & ((1u << count) - 1); }
};

void sdwa_source(Reader& r, Operand& op, const Sdwa& s, int base, Type type) {
  op.select = selection(r, s.bits(base, 3));
  op.sign_extend = s.bits(base + 3, 1);
  op.negate = s.bits(base + 4, 1);
  op.absolute = s.bits(base + 5, 1);
  if ((op.negate || op.absolute) && !is_float_type(type))
    r.fail("float modifier on an integer source");
}

// Second dword of SDWA: src0, then how it and the destination select.
Operand sdwa_src0(Reader& r, Sdwa& s) {
  s.on = true;
  s.word = r.word1;
  Type type = r.inst.info->src[0];
  Operand op = s.bits(23, 1) ? r.scalar(s.bits(0, 8), type) : r.vector(s.bits(0, 8), type);
  sdwa_source(r, op, s, 16, type);
  return op;
}
void sdwa_destination(Reader& r, const Sdwa& s) {
  selection(r, s.bits(8, 3));
  constexpr u32 kToSelect[] = {1, 2, 3, 4, 5, 6, 0}; // hardware code to enum Select
  r.inst.modifiers |= Modifiers::kSdwa | kToSelect[s.bits(8, 3)] << Modifiers::kDstSelShift |
                      s.bits(11, 2) << Modifiers::kDstUnusedShift;
  r.output_modifiers(s.bits(13, 1), s.bits(14, 2));
  if (s.bits(11, 2) == 3)
    r.fail("reserved dst_unused");
}

Operand dpp_src0(Reader& r) {
  u32 w = r.word1;
  Type type = r.inst.info->src[0];
  r.inst.dpp = {true, static_cast<u16>(w >> 8 & 0x1ff), static_cast<u8>(w >> 28),
                static_cast<u8>(w >> 24 & 15), (w >> 19 & 1) != 0};
  Operand op = r.vector(w & 0xff, type);
  op.negate = w >> 20 & 1;
  op.absolute = w >> 21 & 1;
  if ((op.negate || op.absolute) && !is_float_type(type))
    r.fail("float modifier on an integer source");
  return op;
}

Operand first_source(Reader& r, Sdwa& s) {
  u32 code = r.bits0(0, 9);
  r.inst.form = code == kSdwaCode ? Form::Sdwa : code == kDppCode ? Form::Dpp : Form::E32;
  if (r.inst.form == Form::E32)
    return r.source(code, r.inst.info->src[0]);
  r.second_word();
  return code == kSdwaCode ? sdwa_src0(r, s) : dpp_src0(r);
}

void second_source_modifiers(Reader& r, Operand& op, const Sdwa& s) {
  Type type = r.inst.info->src[1];
  if (s.on) {
    if (s.bits(31, 1))
      op = r.scalar(op.index, type);
    sdwa_source(r, op, s, 24, type);
  } else if (r.inst.dpp.on) {
    op.negate = r.word1 >> 22 & 1;
    op.absolute = r.word1 >> 23 & 1;
  }
}

void use_sources(Reader& r) {
  for (int k = 0; k < 3; ++k)
    r.use(r.inst.src[k], false);
}

} // namespace

void decode_vop1(Reader& r) {
  r.look_up(Format::Vop1, r.bits0(9, 8));
  const OpInfo& info = *r.inst.info;
  if (info.dst == Type::None) { // v_nop
    r.inst.form = Form::E32;
    r.reject(r.bits0(0, 9) || r.bits0(17, 8), "operand");
    return;
  }
  Sdwa s;
  r.inst.src[0] = first_source(r, s);
  if (s.on)
    sdwa_destination(r, s);
  u32 dst = r.bits0(17, 8);
  if (named(r, "v_readfirstlane_b32")) {
    r.inst.dst = r.scalar(dst, Type::B32);
  } else {
    if (named(r, "v_accvgpr_mov_b32")) {
      dst += kAccBase;
      if (r.inst.src[0].kind != Kind::Vector)
        r.fail("source is no accumulation register");
      r.inst.src[0].index += kAccBase;
    }
    r.inst.dst = r.vector(dst, info.dst);
  }
  use_sources(r);
  bool swaps =
      named(r, "v_swap_b32") || named(r, "v_permlane16_swap_b32") || named(r, "v_permlane32_swap_b32");
  if (swaps) {
    r.use(r.inst.dst, false);
    r.use(r.inst.src[0], true);
  }
  bool keeps = s.on && s.bits(11, 2) == 2;
  if (keeps)
    r.use(r.inst.dst, false);
  r.use(r.inst.dst, true);
}

void decode_vop2(Reader& r) {
  r.look_up(Format::Vop2, r.bits0(25, 6));
  const OpInfo& info = *r.inst.info;
  Sdwa s;
  r.inst.src[0] = first_source(r, s);
  r.inst.dst = r.vector(r.bits0(17, 8), info.dst);
  Operand second = r.vector(r.bits0(9, 8), info.src[1]);
  second_source_modifiers(r, second, s);
  r.inst.src[1] = second;
  if (s.on)
    sdwa_destination(r, s);
  if (is_mask(info.src[2])) {
    r.inst.src[2] = vcc(); // carry in, or the condition of v_cndmask
  } else if (info.src[2] != Type::None) {
    bool literal = named(r, "v_fmamk_f32") || named(r, "v_fmaak_f32");
    r.inst.src[2] = literal ? r.source(255, Type::F32) : r.inst.dst;
  }
  use_sources(r);
  if (s.on && s.bits(11, 2) == 2)
    r.use(r.inst.dst, false);
  r.use(r.inst.dst, true);
  if (info.dst2 == Type::Mask) {
    r.inst.dst2 = vcc();
    r.use(r.inst.dst2, true);
  }
}

void decode_vopc(Reader& r) {
  r.look_up(Format::Vopc, r.bits0(17, 8));
  Sdwa s;
  r.inst.src[0] = first_source(r, s);
  Operand second = r.vector(r.bits0(9, 8), r.inst.info->src[1]);
  second_source_modifiers(r, second, s);
  r.inst.src[1] = second;
  r.inst.dst = vcc();
  if (s.on && s.bits(15, 1))
    r.inst.dst = r.scalar(s.bits(8, 7), Type::Mask); // SDWA-B names its own destination
  use_sources(r);
  r.use(r.inst.dst, true);
  if (std::strncmp(r.inst.info->mnemonic, "v_cmpx", 6) == 0)
    r.use_implicit(kExecLo, 2, true);
}

} // namespace emu

// Decoders of the 64-bit vector forms: VOP3 (also of VOP1, VOP2 and VOPC rows) and VOP3P.
#include <cstring>

#include "decode/reader.hpp"

namespace emu {
namespace {

bool is_half_register(Type t) {
  return t == Type::F16 || t == Type::B16 || t == Type::BF16 || t == Type::Half;
}
bool starts(const Reader& r, const char* prefix) {
  return std::strncmp(r.inst.info->mnemonic, prefix, std::strlen(prefix)) == 0;
}

// VOP3 opcode space: 0..255 VOPC, 256.. VOP2, 320.. VOP1, 448.. its own.
void look_up_vop3(Reader& r, u32 opcode) {
  if (opcode < 256)
    return r.look_up(Format::Vopc, opcode);
  if (opcode < 320)
    return r.look_up(Format::Vop2, opcode - 256);
  if (opcode < 448)
    return r.look_up(Format::Vop1, opcode - 320);
  r.look_up(Format::Vop3, opcode);
}

// neg/abs apply to floats; v_cndmask moves bits but its row is written with f32 for them.
void sign_modifiers(Reader& r, int k, u32 abs_bits) {
  Operand& op = r.inst.src[k];
  bool negate = r.word1 >> (29 + k) & 1, absolute = abs_bits >> k & 1;
  if ((negate || absolute) && !is_float_type(r.inst.info->src[k]))
    r.fail("float modifier on an integer source");
  op.negate = negate;
  op.absolute = absolute;
}

void op_sel(Reader& r, u32 bits) {
  r.inst.op_sel = static_cast<u8>(bits);
  if (starts(r, "v_cvt_scalef32"))
    return; // parts of registers, which the executors look at
  bool stochastic = starts(r, "v_cvt_sr_");
  for (int k = 0; k < 3; ++k) {
    if (!(bits >> k & 1))
      continue;
    bool half = is_half_register(r.inst.info->src[k]);
    if (half)
      r.inst.src[k].select = Select::Word1;
    if (stochastic && k == 2)
      r.inst.modifiers |= 1u << (Modifiers::kOpSelShift + 2);
    else if (!half)
      r.fail("op_sel on a 32-bit source");
  }
  bool high = bits >> 3 & 1;
  bool allowed = is_half_register(r.inst.info->dst) || stochastic || starts(r, "v_cvt_pk_fp8") ||
                 starts(r, "v_cvt_pk_bf8");
  if (high && !allowed)
    r.fail("op_sel on a 32-bit destination");
  r.set_modifier(Modifiers::kDstHigh, high);
  r.set_modifier(Modifiers::kKeepHigh, !high && r.inst.info->dst == Type::Half);
}

void vop3_sources(Reader& r) {
  const OpInfo& info = *r.inst.info;
  constexpr int kLow[] = {0, 9, 18};
  for (int k = 0; k < 3; ++k) {
    if (info.src[k] == Type::None)
      continue;
    u32 code = r.bits1(kLow[k], 9);
    bool accumulates = k == 2 && info.format == Format::Vop2 && info.src[k] != Type::Mask;
    r.inst.src[k] = accumulates                 ? r.inst.dst
                    : info.src[k] == Type::Mask ? r.scalar(code, Type::Mask)
                                                : r.source(code, info.src[k]);
  }
}

Operand vop3_destination(Reader& r) {
  const OpInfo& info = *r.inst.info;
  u32 code = r.bits0(0, 8);
  if (info.dst == Type::None)
    return {}; // v_nop
  if (info.dst == Type::Mask || starts(r, "v_readlane") || starts(r, "v_readfirstlane"))
    return r.scalar(code, info.dst);
  return r.vector(code, info.dst);
}

void bitop3_table(Reader& r, u32 abs_bits) {
  // Truth table bits: omod (1:0) low, then abs, then neg.
  r.inst.simm = r.bits1(27, 2) << 6 | abs_bits << 3 | r.bits1(29, 3);
}

void finish_uses(Reader& r, bool keeps_destination) {
  for (const Operand& s : {r.inst.src[0], r.inst.src[1], r.inst.src[2]})
    r.use(s, false);
  if (keeps_destination)
    r.use(r.inst.dst, false);
  r.use(r.inst.dst, true);
  if (r.inst.info->dst2 == Type::Mask)
    r.use(r.inst.dst2, true);
}

// A packed f32 source whose two results take the same register reads only that one. Uses of sources come
// first, in order; those without a register have none.
void narrow_use(Reader& r, int k) {
  const Operand& op = r.inst.src[k];
  bool low = r.inst.modifiers >> Modifiers::kOpSelShift >> k & 1,
       high = r.inst.modifiers >> Modifiers::kOpSelHiShift >> k & 1;
  if (r.inst.info->src[k] != Type::PkF32 || low != high)
    return;
  for (Use& u : std::span(r.inst.uses, r.inst.num_uses)) {
    if (u.write || u.kind != op.kind || u.index != op.index || u.count != 2)
      continue;
    u.count = 1;
    u.index = static_cast<u16>(u.index + low);
    return;
  }
}

void decode_acc_move(Reader& r) {
  bool reads = starts(r, "v_accvgpr_read");
  r.inst.src[0] = r.source(r.bits1(0, 9), Type::B32);
  if (reads && r.inst.src[0].kind != Kind::Vector)
    r.fail("source is no accumulation register");
  if (reads)
    r.inst.src[0].index += kAccBase;
  r.inst.dst = r.vector(r.bits0(0, 8) + (reads ? 0 : kAccBase), Type::B32);
  r.use(r.inst.src[0], false);
  r.use(r.inst.dst, true);
}

} // namespace

void decode_vop3(Reader& r) {
  r.second_word();
  look_up_vop3(r, r.bits0(16, 10));
  r.inst.form = r.inst.info->format == Format::Vop3 ? Form::Plain : Form::E64;
  const OpInfo& info = *r.inst.info;
  bool carries = info.dst2 == Type::Mask;
  u32 abs_bits = carries ? 0 : r.bits0(8, 3);
  r.inst.dst = vop3_destination(r);
  vop3_sources(r);
  if (carries) {
    r.inst.dst2 = r.scalar(r.bits0(8, 7), Type::Mask);
  } else {
    op_sel(r, r.bits0(11, 4));
  }
  if (starts(r, "v_bitop3")) {
    bitop3_table(r, abs_bits);
  } else {
    for (int k = 0; k < 3; ++k)
      sign_modifiers(r, k, abs_bits);
    r.output_modifiers(r.bits0(15, 1), r.bits1(27, 2));
  }
  bool partial = r.inst.modifiers & (Modifiers::kDstHigh | Modifiers::kKeepHigh) ||
                 starts(r, "v_writelane") || starts(r, "v_cvt_pk_fp8") || starts(r, "v_cvt_pk_bf8") ||
                 starts(r, "v_cvt_sr_") || info.dst == Type::Half;
  if (starts(r, "v_div_fmas"))
    r.use_implicit(kVccLo, 2, false);
  finish_uses(r, partial && !starts(r, "v_writelane"));
}

void decode_vop3p(Reader& r) {
  r.second_word();
  u32 opcode = r.bits0(16, 7);
  if (decode_matrix(r, opcode))
    return;
  r.look_up(Format::Vop3p, opcode);
  if (starts(r, "v_accvgpr"))
    return decode_acc_move(r);
  r.inst.dst = r.vector(r.bits0(0, 8), r.inst.info->dst);
  vop3_sources(r);
  for (int k = 0; k < 3; ++k)
    r.inst.src[k].negate = r.bits1(29 + k, 1);
  u32 hi = r.bits1(27, 2) | r.bits0(14, 1) << 2;
  r.inst.modifiers |= r.bits0(11, 3) << Modifiers::kOpSelShift | hi << Modifiers::kOpSelHiShift |
                      r.bits0(8, 3) << Modifiers::kNegHiShift;
  bool clamp = r.bits0(15, 1);
  bool is_float =
      is_float_type(r.inst.info->dst) || r.inst.info->dst == Type::PkF32 || r.inst.info->dst == Type::PkF16;
  if (clamp && !is_float)
    r.fail("clamp on a packed integer result");
  r.set_modifier(Modifiers::kClamp, clamp);
  finish_uses(r, starts(r, "v_fma_mixlo") || starts(r, "v_fma_mixhi"));
  for (int k = 0; k < 3; ++k)
    narrow_use(r, k);
}

} // namespace emu

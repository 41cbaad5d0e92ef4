// Bit fields of an instruction, and the operand codes that all formats share.
#pragma once

#include <cstdio>
#include <span>
#include <string>

#include "decode/decode.hpp"
#include "modifiers.hpp"
#include "table.hpp"

namespace emu {

inline int registers_of(Type t) {
  switch (t) {
  case Type::None:
    return 0;
  case Type::B64:
  case Type::F64:
  case Type::PkF32:
  case Type::Mask:
    return 2;
  case Type::B96:
    return 3;
  case Type::B128:
    return 4;
  case Type::B192:
    return 6;
  case Type::B256:
    return 8;
  case Type::B512:
    return 16;
  case Type::B1024:
    return 32;
  default:
    return 1;
  }
}

inline bool is_float_type(Type t) {
  return t == Type::F32 || t == Type::F16 || t == Type::F64 || t == Type::BF16;
}

// State of decoding one instruction.
struct Reader {
  std::span<const u32> text;
  u32 pc;
  Target target;
  u32 word0 = 0, word1 = 0;
  Inst inst{};
  int literal_word = 1; // where a literal would stand, counted in dwords from pc

  [[noreturn]] void fail(const std::string& what) const {
    char bytes[32];
    std::snprintf(bytes, sizeof(bytes), " [%08x %08x]", word0, word1);
    std::string name = inst.info ? std::string(inst.info->mnemonic) + ": " : "";
    throw DecodeError{pc, name + what + bytes};
  }
  u32 word(int k) const {
    std::size_t at = pc / 4 + static_cast<std::size_t>(k);
    if (at >= text.size())
      fail("instruction runs past the end of the text");
    return text[at];
  }
  u32 bits0(int low, int count) const { return word0 >> low & ((u64{1} << count) - 1); }
  u32 bits1(int low, int count) const { return word1 >> low & ((u64{1} << count) - 1); }
  void second_word() {
    word1 = word(1);
    inst.size = 8;
    literal_word = 2;
  }
  void reject(bool present, const char* field) const {
    if (present)
      fail(std::string("unsupported ") + field);
  }

  void look_up(Format format, u32 opcode) {
    inst.info = find_op(format, opcode, target);
    if (!inst.info)
      fail("unknown opcode " + std::to_string(opcode));
    inst.exec = inst.info->exec;
  }
  void set_modifier(u32 bit, bool on) { inst.modifiers |= on ? bit : 0; }

  Operand vector(u32 index, Type type) const {
    Operand op;
    op.kind = Kind::Vector;
    op.count = static_cast<u8>(registers_of(type));
    op.index = static_cast<u16>(index);
    if (index % kAccBase + op.count > kAccBase)
      fail("vector register range runs past v255");
    return op;
  }
  Operand scalar(u32 code, Type type) const; // SGPRs, VCC, M0, EXEC: a destination or an address
  Operand source(u32 code, Type type);       // 8 or 9 bits: scalars, constants, literal, VGPRs from 256
  void use(const Operand& op, bool write, bool whole_wave = false);
  void use_implicit(u32 scalar, int count, bool write);

  // clamp and omod of a VOP3 or SDWA. Integers saturate by another executor. The hardware ignores omod while
  // denormals are kept, which is always so here, so that a kernel with one is wrong.
  void output_modifiers(bool clamp, u32 omod);
};

// One function per format, in decode/<family>.cpp; each fills `r.inst`.
void decode_sop1(Reader& r);
void decode_sop2(Reader& r);
void decode_sopk(Reader& r);
void decode_sopc(Reader& r);
void decode_sopp(Reader& r);
void decode_smem(Reader& r);
void decode_vop1(Reader& r);
void decode_vop2(Reader& r);
void decode_vopc(Reader& r);
void decode_vop3(Reader& r);
void decode_vop3p(Reader& r);
bool decode_matrix(Reader& r, u32 opcode); // of VOP3P; false when it is none
void decode_ds(Reader& r);
void decode_flat(Reader& r);
void decode_mubuf(Reader& r);

} // namespace emu

// Operand codes of gfx9: 0..127 scalars, 128..248 constants, 251..255 specials and the literal, 256.. VGPRs.
#include "decode/reader.hpp"

namespace emu {
namespace {

constexpr f64 kFloatConstants[] = {0.5, -0.5, 1, -1, 2, -2, 4, -4, 0.15915494309189535}; // codes 240..248

// An inline float constant is a float of the operand's width; integer operands see the f32 bits (64-bit ones
// f64).
u64 float_constant(u32 code, Type type) {
  f64 value = kFloatConstants[code - 240];
  switch (type) {
  case Type::F64:
  case Type::B64:
    return std::bit_cast<u64>(value);
  case Type::F16:
  case Type::B16:
  case Type::PkF16:
    return float_to_half(static_cast<f32>(value));
  case Type::BF16:
    return float_to_bfloat(static_cast<f32>(value));
  case Type::PkF32: {
    u64 bits = std::bit_cast<u32>(static_cast<f32>(value));
    return bits << 32 | bits;
  }
  default:
    return std::bit_cast<u32>(static_cast<f32>(value));
  }
}

u64 int_constant(i32 value, Type type) {
  switch (type) {
  case Type::B64:
    return static_cast<u64>(i64{value});
  case Type::F64:
    return static_cast<u64>(i64{value});
  case Type::PkF32:
    return u64{static_cast<u32>(value)} << 32 | static_cast<u32>(value);
  default:
    return static_cast<u32>(value);
  }
}

u64 literal_value(u32 bits, Type type) {
  switch (type) {
  case Type::F64:
    return u64{bits} << 32; // the literal is the high half
  case Type::B64:
    return bits;
  case Type::PkF32:
    return u64{bits} << 32 | bits;
  default:
    return bits;
  }
}

bool has_scalar(u32 code) {
  return code <= 103 || (code >= 106 && code <= 124) || code == 126 || code == 127;
}

} // namespace

Operand Reader::scalar(u32 code, Type type) const {
  Operand op;
  op.kind = Kind::Scalar;
  op.count = static_cast<u8>(registers_of(type));
  op.index = static_cast<u16>(code);
  if (!has_scalar(code) || code + op.count > kScalarRegs)
    fail("no such scalar register: code " + std::to_string(code));
  return op;
}

Operand Reader::source(u32 code, Type type) {
  if (code >= 256)
    return vector(code - 256, type);
  Operand op;
  op.kind = Kind::Constant;
  op.count = 0;
  op.code = static_cast<u16>(code);
  if (code < 128)
    return scalar(code, type);
  if (code <= 192) {
    op.value = int_constant(static_cast<i32>(code) - 128, type);
  } else if (code <= 208) {
    op.value = int_constant(192 - static_cast<i32>(code), type);
  } else if (code >= 235 && code <= 238) {
    if (registers_of(type) != 2)
      fail("an aperture is a 64-bit source");
    bool limit = code % 2 == 0;
    op.value = u64{code < 237 ? kSharedAperture : kPrivateAperture} << 32 | (limit ? ~u32{0} : 0);
  } else if (code >= 240 && code <= 248) {
    op.value = float_constant(code, type);
  } else if (code == 251 || code == 252 || code == 253) {
    op.kind = code == 251 ? Kind::VccZero : code == 252 ? Kind::ExecZero : Kind::Scc;
  } else if (code == 255) {
    op.value = literal_value(word(literal_word), type);
    inst.size = static_cast<u8>(4 * (literal_word + 1));
  } else {
    fail("unsupported operand code " + std::to_string(code));
  }
  return op;
}

void Reader::output_modifiers(bool clamp, u32 omod) {
  bool is_float = is_float_type(inst.info->dst);
  if (clamp && !is_float && !(inst.exec = saturating(inst.info->mnemonic)))
    fail("clamp on an integer result");
  if (omod)
    fail("omod, which has no effect while denormals are kept");
  set_modifier(Modifiers::kClamp, clamp);
}

void Reader::use(const Operand& op, bool write, bool whole_wave) {
  if (op.kind != Kind::Vector && op.kind != Kind::Scalar)
    return;
  if (inst.num_uses == std::size(inst.uses))
    fail("too many operands");
  inst.uses[inst.num_uses++] = Use{op.kind, write, whole_wave, op.count, op.index};
}

void Reader::use_implicit(u32 code, int count, bool write) {
  Operand op;
  op.kind = Kind::Scalar;
  op.index = static_cast<u16>(code);
  op.count = static_cast<u8>(count);
  use(op, write);
}

} // namespace emu

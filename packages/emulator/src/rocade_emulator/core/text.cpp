// Assembly-like text of an instruction: mnemonic, destination, sources, offset.
#include "text.hpp"

#include "modifiers.hpp"

namespace emu {
namespace {

std::string scalar_name(u32 code) {
  switch (code) {
    case kVccLo: return "vcc";
    case kM0: return "m0";
    case kExecLo: return "exec";
    default: return "s" + std::to_string(code);
  }
}

std::string range(const char* file, u32 first, u32 count) {
  if (count <= 1) return file + std::to_string(first);
  return std::string(file) + "[" + std::to_string(first) + ":" + std::to_string(first + count - 1) + "]";
}

std::string name_of(const Operand& op) {
  char number[24];
  switch (op.kind) {
    case Kind::Vector:
      return op.index >= kAccBase ? range("a", op.index - kAccBase, op.count) : range("v", op.index, op.count);
    case Kind::Scalar: return op.index < 102 ? range("s", op.index, op.count) : scalar_name(op.index);
    case Kind::Scc: return "scc";
    case Kind::VccZero: return "vccz";
    case Kind::ExecZero: return "execz";
    default: std::snprintf(number, sizeof(number), "0x%llx", static_cast<unsigned long long>(op.value)); return number;
  }
}

std::string signed_name(const Operand& op) {
  std::string s = name_of(op);
  if (op.absolute) s = "|" + s + "|";
  return op.negate ? "-" + s : s;
}

}  // namespace

std::string text_of(const Inst& i) {
  std::string out = i.info->mnemonic;
  const char* separator = " ";
  auto add = [&](const std::string& s) {
    out += separator + s;
    separator = ", ";
  };
  if (i.dst.kind != Kind::None) add(name_of(i.dst));
  if (i.dst2.kind != Kind::None) add(name_of(i.dst2));
  for (const Operand& s : i.src)
    if (s.kind != Kind::None) add(signed_name(s));
  if (i.info->format == Format::Sopp || i.info->format == Format::Sopk) add("0x" + [&] {
    char hex[16];
    std::snprintf(hex, sizeof(hex), "%x", i.simm & 0xffff);
    return std::string(hex);
  }());
  bool memory = i.info->unit == Unit::Lds || i.info->unit == Unit::Vmem || i.info->unit == Unit::Smem;
  if (memory && i.offset) out += " offset:" + std::to_string(i.offset);
  if (has(i, Modifiers::kLds)) out += " lds";
  return out;
}

}  // namespace emu

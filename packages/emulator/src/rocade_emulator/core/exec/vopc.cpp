// Executors of VOPC: the rows of isa/vopc.inc, each in its plain and its EXEC-writing form.
#include "rows.hpp"

namespace emu {
namespace {

// Bit of the class mask that a value belongs to: 0 signalling NaN, 1 quiet NaN, 2..5 negative infinity,
// normal, denormal, zero, 6..9 positive zero, denormal, normal, infinity.
template <class Bits, int kMantissa> bool has_class(Bits bits, u32 mask) {
  constexpr Bits kOne = 1;
  constexpr int kWidth = sizeof(Bits) * 8;
  Bits fraction = bits & ((kOne << kMantissa) - 1);
  Bits exponent = bits >> kMantissa & ((kOne << (kWidth - 1 - kMantissa)) - 1);
  Bits top = (kOne << (kWidth - 1 - kMantissa)) - 1;
  bool negative = bits >> (kWidth - 1) & 1;
  if (exponent == top && fraction)
    return mask >> (fraction >> (kMantissa - 1) & 1) & 1;
  int kind = exponent == top ? 0 : exponent ? 1 : fraction ? 2 : 3;
  return mask >> (negative ? 2 + kind : 9 - kind) & 1;
}

namespace op {
#define CMP(code, name, T, ...)                                                                              \
  struct name {                                                                                              \
    static bool apply([[maybe_unused]] T a, [[maybe_unused]] T b) { return __VA_ARGS__; }                    \
  };
#define CLASS(...)
#include "isa/vopc.inc"
#undef CMP
#undef CLASS
struct class_f32 {
  static bool apply(f32 a, u32 mask) { return has_class<u32, 23>(std::bit_cast<u32>(a), mask); }
};
struct class_f64 {
  static bool apply(f64 a, u32 mask) { return has_class<u64, 52>(std::bit_cast<u64>(a), mask); }
};
struct class_f16 {
  static bool apply(RawHalf a, u32 mask) { return has_class<u16, 10>(a.bits, mask); }
};
} // namespace op

template <class Op> void run_and_set_exec(Wave& w, const Inst& i) {
  run_valu<Op>(w, i);
  w.set_exec(read_scalar64(w, i.dst));
}

template <class Op>
void add_rows(std::vector<OpInfo>& rows, const char* plain, const char* writing, int code) {
  rows.push_back(valu_row<Op>(plain, Format::Vopc, Unit::Valu, code, Target::Both));
  rows.push_back(rows.back());
  OpInfo& x = rows.back();
  x.mnemonic = writing;
  x.opcode = static_cast<u16>(code + (code < 32 ? 1 : 16));
  x.exec = &run_and_set_exec<Op>;
}

} // namespace

std::vector<OpInfo> vopc_rows() {
  std::vector<OpInfo> rows;
#define CMP(code, name, ...) add_rows<op::name>(rows, "v_cmp_" #name, "v_cmpx_" #name, code);
#define CLASS(code, name, T) CMP(code, name)
#include "isa/vopc.inc"
#undef CMP
#undef CLASS
  return rows;
}

} // namespace emu

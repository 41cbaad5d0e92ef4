// Executors of VOP2: the rows of isa/vop2.inc.
#include "rows.hpp"

namespace emu {
namespace {

namespace op {
#define OP(code, name, R, ARGS, ...)                                                                         \
  struct name {                                                                                              \
    static R apply ARGS { return __VA_ARGS__; }                                                              \
  };
#define CARRY(code, name, ARGS, ...) OP(code, name, Carry, ARGS, __VA_ARGS__)
#define ACC OP
#define ACC950 OP
#define LITERAL OP
#include "isa/vop2.inc"
#undef OP
#undef CARRY
#undef ACC
#undef ACC950
#undef LITERAL
} // namespace op

template <class Op> OpInfo row(const char* name, int code, Target target) {
  return valu_row<Op>(name, Format::Vop2, Unit::Valu, code, target);
}

} // namespace

std::vector<OpInfo> vop2_rows() {
  return {
#define OP(code, name, ...) row<op::name>(#name, code, Target::Both),
#define CARRY OP
#define ACC OP
#define ACC950(code, name, ...) row<op::name>(#name, code, Target::Gfx950),
#define LITERAL OP
#include "isa/vop2.inc"
#undef OP
#undef CARRY
#undef ACC
#undef ACC950
#undef LITERAL
  };
}

} // namespace emu

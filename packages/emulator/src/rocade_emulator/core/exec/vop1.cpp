// Executors of VOP1: the rows of isa/vop1.inc.
#include "cross_lane.hpp"
#include "fp8.hpp"
#include "rows.hpp"

namespace emu {
namespace {

namespace op {
#define OP(code, name, R, ARGS, ...)                                                                         \
  struct name {                                                                                              \
    static R apply ARGS { return __VA_ARGS__; }                                                              \
  };
#define TRANS OP
#define OP950 OP
#define SPECIAL(...)
#define SPECIAL950(...)
#include "isa/vop1.inc"
#undef OP
#undef TRANS
#undef OP950
#undef SPECIAL
#undef SPECIAL950
} // namespace op

} // namespace

std::vector<OpInfo> vop1_rows() {
  constexpr Format kFormat = Format::Vop1;
  return {
#define OP(code, name, ...) valu_row<op::name>(#name, kFormat, Unit::Valu, code, Target::Both),
#define TRANS(code, name, ...) valu_row<op::name>(#name, kFormat, Unit::Trans, code, Target::Both),
#define OP950(code, name, ...) valu_row<op::name>(#name, kFormat, Unit::Valu, code, Target::Gfx950),
#define SPECIAL(code, name) cross_lane_row(#name, kFormat, code, Target::Both, &name),
#define SPECIAL950(code, name) cross_lane_row(#name, kFormat, code, Target::Gfx950, &name),
#include "isa/vop1.inc"
#undef OP
#undef TRANS
#undef OP950
#undef SPECIAL
#undef SPECIAL950
  };
}

} // namespace emu

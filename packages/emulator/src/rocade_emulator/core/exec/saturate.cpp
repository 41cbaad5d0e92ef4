// Executors of integer instructions with clamp: the rows of isa/saturate.inc.
#include <cstring>

#include "rows.hpp"

namespace emu {
namespace {

// The nearest value that the type holds.
template <class I> I saturate(i64 x) {
  return static_cast<I>(
      std::clamp(x, i64{std::numeric_limits<I>::min()}, i64{std::numeric_limits<I>::max()}));
}

namespace op {
#define OP(name, R, ARGS, ...)                                                                               \
  struct name {                                                                                              \
    static R apply ARGS { return __VA_ARGS__; }                                                              \
  };
#include "isa/saturate.inc"
#undef OP
} // namespace op

struct Saturating {
  const char* mnemonic;
  Exec exec;
};
constexpr Saturating kRows[] = {
#define OP(name, ...) {#name, &run_valu<op::name>},
#include "isa/saturate.inc"
#undef OP
};

} // namespace

Exec saturating(const char* mnemonic) {
  for (const Saturating& row : kRows)
    if (std::strcmp(row.mnemonic, mnemonic) == 0)
      return row.exec;
  return nullptr;
}

} // namespace emu

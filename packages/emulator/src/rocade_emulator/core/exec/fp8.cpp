// Tables and rounding of the 8-bit floats.
#include "fp8.hpp"

#include <array>

namespace emu {
thread_local bool t_fp8_ocp = false;
namespace {

struct Flavour {
  int mantissa, bias;
  bool fnuz, has_infinity;
};

constexpr Flavour flavour(bool ocp, bool is_bf8) {
  return is_bf8 ? Flavour{2, ocp ? 15 : 16, !ocp, ocp} : Flavour{3, ocp ? 7 : 8, !ocp, false};
}

f32 decode(u8 byte, Flavour f) {
  int exponent_bits = 7 - f.mantissa, top = (1 << exponent_bits) - 1;
  int exponent = byte >> f.mantissa & top, fraction = byte & ((1 << f.mantissa) - 1);
  f32 sign = byte & 0x80 ? -1.0f : 1.0f;
  constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN();
  if (f.fnuz && byte == 0x80)
    return kNan;
  if (!f.fnuz && f.has_infinity && exponent == top)
    return fraction ? kNan : sign * std::numeric_limits<f32>::infinity();
  if (!f.fnuz && !f.has_infinity && (byte & 0x7f) == 0x7f)
    return kNan;
  if (exponent == 0)
    return sign * std::ldexp(static_cast<f32>(fraction), 1 - f.bias - f.mantissa);
  return sign * std::ldexp(static_cast<f32>(fraction | 1 << f.mantissa), exponent - f.bias - f.mantissa);
}

struct Tables {
  f32 value[2][2][256];
  Tables() {
    for (int ocp = 0; ocp < 2; ++ocp)
      for (int b = 0; b < 2; ++b)
        for (int i = 0; i < 256; ++i)
          value[ocp][b][i] = decode(static_cast<u8>(i), flavour(ocp, b));
  }
};
const Tables g_tables;

u8 largest(Flavour f) {
  if (f.fnuz)
    return 0x7f;
  return f.has_infinity ? 0x7b : 0x7e;
}
u8 not_a_number(Flavour f, bool negative) { return f.fnuz ? 0x80 : static_cast<u8>(negative ? 0xff : 0x7f); }

} // namespace

const f32 (&fp8_table(bool ocp, bool is_bf8))[256] { return g_tables.value[ocp][is_bf8]; }

u8 float_to_fp8(f64 value, bool is_bf8, bool stochastic, u32 noise) {
  Flavour f = flavour(t_fp8_ocp, is_bf8);
  bool negative = std::signbit(value);
  if (value != value)
    return not_a_number(f, negative);
  u8 sign = negative ? 0x80 : 0;
  f64 magnitude = std::fabs(value);
  f32 limit = decode(largest(f), f);
  if (magnitude >= limit)
    return sign | largest(f);
  int exponent;
  std::frexp(magnitude, &exponent);                           // magnitude in [2^(exponent-1), 2^exponent)
  int unit = std::max(exponent - 1, 1 - f.bias) - f.mantissa; // weight of the last kept bit
  // In f64, which holds the sum with the noise exactly: the noise's high bits stand right below the kept
  // ones.
  f64 scaled = std::ldexp(magnitude, -unit),
      below = std::ldexp(static_cast<f64>(noise >> (9 + f.mantissa)), f.mantissa - 23);
  f64 whole = stochastic ? std::floor(scaled + below) : std::nearbyint(scaled);
  u32 steps = static_cast<u32>(whole);
  if (steps == 0)
    return f.fnuz ? 0 : sign; // FNUZ has no negative zero
  // `steps` counts units of 2^unit; a carry into the next binade is the same encoding arithmetic.
  int biased = unit + f.mantissa + f.bias;
  u32 code = (steps >> f.mantissa) ? (static_cast<u32>(biased - 1) << f.mantissa) + steps : steps;
  return static_cast<u8>(sign | std::min<u32>(code, largest(f)));
}

} // namespace emu

// Executors of the matrix instructions over 8-, 6- and 4-bit floats; see f8f6f4.hpp. A lane holds 32 elements
// of one row of A or column of B, in the order of their bits: with g = lane / M, k = 32 * g + e, but elements
// of 8 bits come in two halves, k = 16 * g + e and K / 2 + 16 * g + e - 16. Scales belong to k, whatever lane
// holds it: byte s of the scale register of lane (row, g) multiplies k = 32 * g to 32 * g + 31 by 2^(s -
// 127), and 255 is NaN. The layouts of 8 and 4 bits agree with code that Triton compiles; that of 6 bits is
// taken to be that of 4.
#include "f8f6f4.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "fp8.hpp"
#include "modifiers.hpp"
#include "registers.hpp"
#include "rows.hpp"

namespace emu {
namespace {

constexpr int kPerLane = 32; // elements, and how many share a scale

// Small floats without infinity and NaN: sign, exponent with `bias`, `fraction` bits.
struct SmallFloat {
  int bits, fraction, bias;
};
constexpr SmallFloat kSmall[] = {{6, 3, 1}, {6, 2, 3}, {4, 1, 1}}; // fp6 e2m3, bf6 e3m2, fp4 e2m1

f32 small_value(u32 code, SmallFloat f) {
  u32 magnitude = code & ((1u << (f.bits - 1)) - 1), sign = code >> (f.bits - 1);
  int exponent = static_cast<int>(magnitude >> f.fraction);
  int fraction = static_cast<int>(magnitude & ((1u << f.fraction) - 1));
  int whole = exponent ? fraction + (1 << f.fraction) : fraction;
  f32 value = std::ldexp(static_cast<f32>(whole), std::max(exponent, 1) - f.bias - f.fraction);
  return sign ? -value : value;
}

struct SmallTables {
  f32 value[3][64] = {};
  SmallTables() {
    for (int t = 0; t < 3; ++t)
      for (u32 code = 0; code < 1u << kSmall[t].bits; ++code)
        value[t][code] = small_value(code, kSmall[t]);
  }
};
const SmallTables g_small;

// What a type's codes mean and how wide they are.
struct Codes {
  const f32* value;
  u32 bits;
};
Codes codes_of(u32 type) {
  if (type < 2)
    return {fp8_table(t_fp8_ocp, type == 1), 8};
  return {g_small.value[type - 2], type == 4 ? 4u : 6u};
}

template <int kSide> int index_of(u32 bits, int group, int e) {
  constexpr int kHalf = kLanes / kSide * kPerLane / 2;
  return bits == 8 ? e / 16 * kHalf + group * 16 + e % 16 : group * kPerLane + e;
}

// Elements of A or B as [k][side].
template <int kSide> void unpack(const Wave& w, const Operand& op, u32 type, f32 (*out)[kSide]) {
  const Codes codes = codes_of(type);
  const u32 mask = (1u << codes.bits) - 1;
  for (u32 e = 0; e < kPerLane; ++e) {
    u32 bit = e * codes.bits, reg = op.index + bit / 32, shift = bit % 32;
    for (int lane = 0; lane < kLanes; ++lane) {
      u32 code = w.v[reg][lane] >> shift;
      if (shift + codes.bits > 32)
        code |= w.v[reg + 1][lane] << (32 - shift);
      int k = index_of<kSide>(codes.bits, lane / kSide, static_cast<int>(e));
      out[k][lane % kSide] = codes.value[code & mask];
    }
  }
}

// The factor in each lane's scale register.
void scales(const Wave& w, const Inst& i, int operand, f64* out) {
  const u32* row = w.v[i.src[3 + operand].index];
  u32 byte = (i.op_sel >> operand & 1) | (i.op_sel >> (2 + operand) & 1) << 1;
  for (int lane = 0; lane < kLanes; ++lane) {
    u32 code = row[lane] >> 8 * byte & 0xff;
    out[lane] =
        code == 255 ? std::numeric_limits<f64>::quiet_NaN() : std::ldexp(1.0, static_cast<int>(code) - 127);
  }
}

// C, element [row][column], from its registers or a constant; D back.
template <int M> int row_of(int r, int lane) { return r / 4 * 4 * (kLanes / M) + lane / M * 4 + r % 4; }
template <int M> void load_addend(const Wave& w, const Inst& i, f32 (*sum)[M]) {
  for (int r = 0; r < M * M / kLanes; ++r)
    for (int lane = 0; lane < kLanes; ++lane)
      sum[row_of<M>(r, lane)][lane % M] = std::bit_cast<f32>(
          i.src[2].kind == Kind::Vector ? w.v[i.src[2].index + r][lane] : read_scalar(w, i.src[2]));
}
template <int M> void store_sums(Wave& w, const Inst& i, const f32 (*sum)[M]) {
  for (int r = 0; r < M * M / kLanes; ++r)
    for (int lane = 0; lane < kLanes; ++lane)
      w.v[i.dst.index + r][lane] = std::bit_cast<u32>(sum[row_of<M>(r, lane)][lane % M]);
}

// A group of 32 k after the other: their products are summed in f32, scaled, and added.
template <int M, bool kScales> void run(Wave& w, const Inst& i) {
  constexpr int kGroups = kLanes / M, K = kGroups * kPerLane;
  alignas(64) f32 a[K][M], b[K][M], sum[M][M];
  unpack<M>(w, i.src[0], field(i, Modifiers::kCbszShift, 3), a);
  unpack<M>(w, i.src[1], field(i, Modifiers::kBlgpShift, 3), b);
  f64 scale_a[kLanes], scale_b[kLanes];
  if constexpr (kScales) {
    scales(w, i, 0, scale_a);
    scales(w, i, 1, scale_b);
  }
  load_addend<M>(w, i, sum);
  for (int g = 0; g < kGroups; ++g)
    for (int row = 0; row < M; ++row) {
      alignas(64) f32 products[M] = {};
      for (int k = g * kPerLane; k < (g + 1) * kPerLane; ++k)
        for (int column = 0; column < M; ++column)
          products[column] += a[k][row] * b[k][column];
      for (int column = 0; column < M; ++column)
        if constexpr (kScales)
          sum[row][column] = static_cast<f32>(sum[row][column] + products[column] * scale_a[g * M + row] *
                                                                     scale_b[g * M + column]);
        else
          sum[row][column] += products[column];
    }
  store_sums<M>(w, i, sum);
}

OpInfo row(const char* name, u32 code, Exec exec, Type wide, int clocks, bool scales) {
  OpInfo info = special_row(name, Format::Mfma, Unit::Mfma, static_cast<int>(code), Target::Gfx950, exec,
                            wide, {Type::B256, Type::B256, wide});
  if (scales)
    info.src[3] = info.src[4] = Type::B32;
  info.cycles = info.cycles_gfx950 = static_cast<u8>(clocks); // half when neither operand has 8 bits
  return info;
}

} // namespace

std::vector<OpInfo> f8f6f4_rows() {
  return {
#define F8F6F4(code, shape, M, wide, clocks)                                                                 \
  row("v_mfma_f32_" #shape "_f8f6f4", code, &run<M, false>, Type::wide, clocks, false),                      \
      row("v_mfma_scale_f32_" #shape "_f8f6f4", kScaled + code, &run<M, true>, Type::wide, clocks, true),
#include "isa/f8f6f4.inc"
#undef F8F6F4
  };
}

} // namespace emu

// Executors of VOP3-only instructions: the rows of isa/vop3.inc.
#include "cross_lane.hpp"
#include "fp8.hpp"
#include "rows.hpp"

namespace emu {
namespace {

// v_div_scale: scales numerator or denominator so that the division steps stay in range; the mask says that
// v_div_fmas must scale back.
template <class F> struct Scaled {
  F value;
  bool mask;
};
template <class F> int exponent_field(F x) {
  if constexpr (sizeof(F) == 4)
    return static_cast<int>(std::bit_cast<u32>(x) >> 23 & 0xff);
  else
    return static_cast<int>(std::bit_cast<u64>(x) >> 52 & 0x7ff);
}
template <class F> bool is_denormal(F x) { return x != 0 && exponent_field(x) == 0; }
template <class F> Scaled<F> div_scale(F a, F b, F c) {
  constexpr bool kSingle = sizeof(F) == 4;
  constexpr int kScale = kSingle ? 64 : 128, kFar = kSingle ? 96 : 768, kTiny = kSingle ? 23 : 53;
  F up = std::ldexp(a, kScale);
  if (c == 0 || b == 0)
    return {std::numeric_limits<F>::quiet_NaN(), false};
  if (exponent_field(c) - exponent_field(b) >= kFar)
    return {a == b ? up : a, true};
  if (is_denormal(b))
    return {up, false};
  bool tiny_reciprocal = kSingle ? exponent_field(b) >= 253 && std::isfinite(b) : is_denormal(F(1) / b);
  if (tiny_reciprocal && is_denormal(c / b))
    return {a == b ? up : a, true};
  if (tiny_reciprocal)
    return {std::ldexp(a, -kScale), false};
  if (is_denormal(c / b))
    return {a == c ? up : a, true};
  return {exponent_field(c) <= kTiny ? up : a, false};
}

template <class F> void run_div_scale(Wave& w, const Inst& i) {
  u64 lanes = w.exec(), mask = 0;
  Values<F> a, b, c;
  fetch(w, i, 0, a, lanes);
  fetch(w, i, 1, b, lanes);
  fetch(w, i, 2, c, lanes);
  for (int l = 0; l < kLanes; ++l) {
    Scaled<F> s = div_scale(a[l], b[l], c[l]);
    a[l] = s.value;
    mask |= u64{s.mask} << l;
  }
  store(w, i, a, lanes);
  write_scalar64(w, i.dst2, mask & lanes);
}

template <class F, int kPower> void run_div_fmas(Wave& w, const Inst& i) {
  u64 lanes = w.exec(), vcc = w.vcc();
  Values<F> a, b, c;
  fetch(w, i, 0, a, lanes);
  fetch(w, i, 1, b, lanes);
  fetch(w, i, 2, c, lanes);
  for (int l = 0; l < kLanes; ++l) {
    F r = std::fma(a[l], b[l], c[l]);
    a[l] = vcc >> l & 1 ? std::ldexp(r, kPower) : r;
  }
  store(w, i, a, lanes);
}

// Cube map: the face that a direction hits, its coordinates there, and twice the major axis.
struct Cube {
  f32 id, s, t, major;
};
Cube cube(f32 x, f32 y, f32 z) {
  f32 ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  if (az >= ax && az >= ay)
    return {z < 0 ? 5.0f : 4.0f, z < 0 ? -x : x, -y, z * 2};
  if (ay >= ax)
    return {y < 0 ? 3.0f : 2.0f, x, y < 0 ? -z : z, y * 2};
  return {x < 0 ? 1.0f : 0.0f, x < 0 ? z : -z, -y, x * 2};
}

// 32 x 32 + 64 bits; the mask gets bit 64 of the exact sum.
template <class Wide> using Exact = std::conditional_t<std::is_signed_v<Wide>, __int128, unsigned __int128>;

template <class Wide, class Narrow> void run_mad64(Wave& w, const Inst& i) {
  u64 lanes = w.exec(), mask = 0;
  Values<Narrow> a, b;
  Values<Wide> c;
  fetch(w, i, 0, a, lanes);
  fetch(w, i, 1, b, lanes);
  fetch(w, i, 2, c, lanes);
  for (int l = 0; l < kLanes; ++l) {
    Exact<Wide> sum = Exact<Wide>{a[l]} * b[l] + c[l];
    mask |= static_cast<u64>(sum >> 64 & 1) << l;
    c[l] = static_cast<Wide>(sum);
  }
  store(w, i, c, lanes);
  write_scalar64(w, i.dst2, mask & lanes);
}

template <bool kIsBf8> void run_pack_fp8(Wave& w, const Inst& i) {
  u64 lanes = w.exec();
  Values<f32> a, b;
  fetch(w, i, 0, a, lanes);
  fetch(w, i, 1, b, lanes);
  bool high = has(i, Modifiers::kDstHigh);
  for (int l = 0; l < kLanes; ++l) {
    if (!(lanes >> l & 1))
      continue;
    u32 pair = float_to_fp8(a[l], kIsBf8) | u32{float_to_fp8(b[l], kIsBf8)} << 8;
    u32& d = w.v[i.dst.index][l];
    d = high ? (d & 0xffffu) | pair << 16 : (d & 0xffff0000u) | pair;
  }
}

// The destination byte is op_sel[3:2].
template <bool kIsBf8> void run_stochastic_fp8(Wave& w, const Inst& i) {
  u64 lanes = w.exec();
  Values<f32> a;
  Values<u32> noise;
  fetch(w, i, 0, a, lanes);
  fetch(w, i, 1, noise, lanes);
  u32 byte = field(i, Modifiers::kOpSelShift + 2, 1) | u32{has(i, Modifiers::kDstHigh)} << 1;
  for (int l = 0; l < kLanes; ++l) {
    if (!(lanes >> l & 1))
      continue;
    u32& d = w.v[i.dst.index][l];
    u32 code = float_to_fp8(a[l], kIsBf8, true, noise[l]);
    d = (d & ~(0xffu << 8 * byte)) | code << 8 * byte;
  }
}

// Any function of three bits: the truth table is spread over omod, abs and neg (kBitopShift holds it, put by
// decode).
u32 bitop3(u32 a, u32 b, u32 c, u32 table) {
  u32 out = 0;
  for (int k = 0; k < 8; ++k)
    if (table >> k & 1)
      out |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  return out;
}
template <u32 kMask> void run_bitop3(Wave& w, const Inst& i) {
  Fetched a, b, c;
  fetch_raw(w, i.src[0], 1, a);
  fetch_raw(w, i.src[1], 1, b);
  fetch_raw(w, i.src[2], 1, c);
  for (int l = 0; l < kLanes; ++l)
    a.lo[l] = bitop3(a.lo[l], b.lo[l], c.lo[l], i.simm) & kMask;
  store_rows(w, i, a.lo, nullptr, w.exec());
}

namespace op {
#define OP(code, name, R, ARGS, ...)                                                                         \
  struct name {                                                                                              \
    static R apply ARGS { return __VA_ARGS__; }                                                              \
  };
#define OP950 OP
#define SCALE(...)
#define FMAS(...)
#define MAD64(...)
#define SPECIAL(...)
#define SPECIAL950(...)
#include "isa/vop3.inc"
#undef OP
#undef OP950
#undef SCALE
#undef FMAS
#undef MAD64
#undef SPECIAL
#undef SPECIAL950
} // namespace op

OpInfo special(const char* name, int code, Target target, Exec exec, Type dst,
               std::initializer_list<Type> sources) {
  return special_row(name, Format::Vop3, Unit::Valu, code, target, exec, dst, sources);
}
template <class F> OpInfo three(const char* name, int code, Exec exec, Type dst2) {
  constexpr Type t = Lane<F>::type;
  OpInfo row = special(name, code, Target::Both, exec, t, {t, t, t});
  row.dst2 = dst2;
  return row;
}
template <class Wide, class Narrow> OpInfo mad64(const char* name, int code) {
  OpInfo row = special(name, code, Target::Both, &run_mad64<Wide, Narrow>, Type::B64,
                       {Type::B32, Type::B32, Type::B64});
  row.dst2 = Type::Mask;
  return row;
}
OpInfo v_cvt_pk_fp8(const char* name, int code, Exec exec) {
  return special(name, code, Target::Both, exec, Type::B32, {Type::F32, Type::F32});
}

} // namespace

std::vector<OpInfo> vop3_rows() {
  std::vector<OpInfo> rows = {
#define OP(code, name, ...) valu_row<op::name>(#name, Format::Vop3, Unit::Valu, code, Target::Both),
#define OP950(code, name, ...) valu_row<op::name>(#name, Format::Vop3, Unit::Valu, code, Target::Gfx950),
#define SCALE(code, name, F) three<F>(#name, code, &run_div_scale<F>, Type::Mask),
#define FMAS(code, name, F, power) three<F>(#name, code, &run_div_fmas<F, power>, Type::None),
#define MAD64(code, name, Wide, Narrow) mad64<Wide, Narrow>(#name, code),
#define SPECIAL(...)
#define SPECIAL950(...)
#include "isa/vop3.inc"
#undef OP
#undef OP950
#undef SCALE
#undef FMAS
#undef MAD64
#undef SPECIAL
#undef SPECIAL950
  };
  for (auto [name, code, exec] : {std::tuple{"v_readlane_b32", 649, &v_readlane_b32},
                                  {"v_writelane_b32", 650, &v_writelane_b32},
                                  {"v_mbcnt_lo_u32_b32", 652, &v_mbcnt_lo_u32_b32},
                                  {"v_mbcnt_hi_u32_b32", 653, &v_mbcnt_hi_u32_b32}})
    rows.push_back(cross_lane_row(name, Format::Vop3, code, Target::Both, exec));
  rows.push_back(v_cvt_pk_fp8("v_cvt_pk_fp8_f32", 674, &run_pack_fp8<false>));
  rows.push_back(v_cvt_pk_fp8("v_cvt_pk_bf8_f32", 675, &run_pack_fp8<true>));
  for (auto [name, code, exec] : {std::tuple{"v_cvt_sr_fp8_f32", 676, &run_stochastic_fp8<false>},
                                  {"v_cvt_sr_bf8_f32", 677, &run_stochastic_fp8<true>}})
    rows.push_back(special(name, code, Target::Both, exec, Type::B32, {Type::F32, Type::B32}));
  for (auto [name, code, exec, t] : {std::tuple{"v_bitop3_b16", 563, &run_bitop3<0xffff>, Type::B16},
                                     {"v_bitop3_b32", 564, &run_bitop3<~0u>, Type::B32}})
    rows.push_back(special(name, code, Target::Gfx950, exec, t, {t, t, t}));
  return rows;
}

} // namespace emu

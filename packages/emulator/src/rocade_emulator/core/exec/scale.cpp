// Executors of the scaled conversions of gfx950: the rows of isa/scale.inc. op_sel picks the part of the
// register that the codes are in: a half for two 8-bit codes, a byte for one or for two 4-bit codes; the rest
// of a result is kept.
#include "fp8.hpp"
#include "rows.hpp"

namespace emu {
namespace {

struct fp4 {};

template <class S> inline constexpr u32 kBits = 8;
template <> inline constexpr u32 kBits<fp4> = 4;

template <class S> f64 decode(u32 code) {
  if constexpr (std::is_same_v<S, fp8>)
    return fp8_to_float(code);
  if constexpr (std::is_same_v<S, bf8>)
    return bf8_to_float(code);
  constexpr f64 kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}

// 4-bit floats: below 2 in halves, to 4 in ones, above in twos; ties to even, no infinity and no NaN.
u32 float_to_fp4(f64 x) {
  u32 sign = std::signbit(x) ? 8 : 0;
  f64 m = std::fabs(x);
  if (!(m < 6))
    return sign | 7;
  f64 code = m < 2 ? std::nearbyint(m * 2) : m < 4 ? 2 + std::nearbyint(m) : 4 + std::nearbyint(m / 2);
  return sign | static_cast<u32>(code);
}
template <class S> u32 encode(f64 x, bool stochastic = false, u32 noise = 0) {
  if constexpr (std::is_same_v<S, fp4>)
    return float_to_fp4(x);
  else
    return float_to_fp8(x, std::is_same_v<S, bf8>, stochastic, noise);
}

f64 factor(u32 scale) { return std::ldexp(1.0, static_cast<int>(scale >> 23 & 0xff) - 127); }

template <class T> f64 wide_value(u32 bits) {
  if constexpr (std::is_same_v<T, f32>)
    return std::bit_cast<f32>(bits);
  else
    return Lane<T>::load(bits & 0xffff, 0).value;
}
template <class T> u32 wide_bits(f64 x) {
  if constexpr (std::is_same_v<T, f32>)
    return std::bit_cast<u32>(static_cast<f32>(x));
  else
    return static_cast<u32>(Lane<T>::save(T(static_cast<f32>(x))));
}

// Puts `bits` bits of each active lane into its destination at `shift`.
void place(Wave& w, const Inst& i, const u32* values, u32 shift, u32 bits) {
  u32 mask = ((1u << bits) - 1) << shift;
  for (u64 m = w.exec(); m; m &= m - 1) {
    int l = std::countr_zero(m);
    u32& d = w.v[i.dst.index][l];
    d = (d & ~mask) | (values[l] << shift & mask);
  }
}

template <class T, class S> void run_pack(Wave& w, const Inst& i) {
  constexpr bool kTwo = std::is_same_v<T, f32>;
  Fetched a, b, scale;
  fetch_raw(w, i.src[0], 1, a);
  if (kTwo)
    fetch_raw(w, i.src[1], 1, b);
  fetch_raw(w, i.src[kTwo ? 2 : 1], 1, scale);
  for (int l = 0; l < kLanes; ++l) {
    f64 f = factor(scale.lo[l]);
    u32 high = kTwo ? b.lo[l] : a.lo[l] >> 16;
    a.lo[l] = encode<S>(wide_value<T>(a.lo[l]) / f) | encode<S>(wide_value<T>(high) / f) << kBits<S>;
  }
  place(w, i, a.lo, kBits<S> == 8 ? 16u * (i.op_sel >> 3) : 8u * (i.op_sel >> 2), 2 * kBits<S>);
}

template <class T, class S> void run_stochastic(Wave& w, const Inst& i) {
  Fetched a, noise, scale;
  fetch_raw(w, i.src[0], 1, a);
  fetch_raw(w, i.src[1], 1, noise);
  fetch_raw(w, i.src[2], 1, scale);
  for (int l = 0; l < kLanes; ++l)
    a.lo[l] = encode<S>(wide_value<T>(a.lo[l]) / factor(scale.lo[l]), true, noise.lo[l]);
  place(w, i, a.lo, 8u * (i.op_sel >> 2), 8);
}

template <class T, class S> void run_unpack(Wave& w, const Inst& i) {
  constexpr bool kPair = std::is_same_v<T, f32>;
  Fetched a, scale;
  fetch_raw(w, i.src[0], 1, a);
  fetch_raw(w, i.src[1], 1, scale);
  u32 shift = kBits<S> == 8 ? 16u * (i.op_sel & 1) : 8u * (i.op_sel & 3);
  for (int l = 0; l < kLanes; ++l) {
    u32 codes = a.lo[l] >> shift;
    f64 f = factor(scale.lo[l]);
    u32 low = wide_bits<T>(decode<S>(codes & ((1u << kBits<S>)-1)) * f);
    u32 high = wide_bits<T>(decode<S>(codes >> kBits<S> & ((1u << kBits<S>)-1)) * f);
    a.lo[l] = kPair ? low : low | high << 16;
    a.hi[l] = high;
  }
  store_rows(w, i, a.lo, kPair ? a.hi : nullptr, w.exec());
}

template <class T, class S> void run_one(Wave& w, const Inst& i) {
  Fetched a, scale;
  fetch_raw(w, i.src[0], 1, a);
  fetch_raw(w, i.src[1], 1, scale);
  for (int l = 0; l < kLanes; ++l)
    a.lo[l] = wide_bits<T>(decode<S>(a.lo[l] >> 8 * (i.op_sel & 3) & 0xff) * factor(scale.lo[l]));
  if (std::is_same_v<T, f32>)
    return store_rows(w, i, a.lo, nullptr, w.exec());
  place(w, i, a.lo, 16u * (i.op_sel >> 3), 16);
}

OpInfo row(const char* name, int code, Exec exec, Type dst, std::initializer_list<Type> sources) {
  return special_row(name, Format::Vop3, Unit::Valu, code, Target::Gfx950, exec, dst, sources);
}
template <class T> OpInfo pack_row(const char* name, int code, Exec exec) {
  if (std::is_same_v<T, f32>)
    return row(name, code, exec, Type::Half, {Type::F32, Type::F32, Type::F32});
  return row(name, code, exec, Type::Half, {Type::PkB16, Type::F32});
}

} // namespace

std::vector<OpInfo> scale_rows() {
  return {
#define PACK(code, name, T, S) pack_row<T>(#name, code, &run_pack<T, S>),
#define STOCHASTIC(code, name, T, S)                                                                         \
  row(#name, code, &run_stochastic<T, S>, Type::Half, {Lane<T>::type, Type::B32, Type::F32}),
#define UNPACK(code, name, T, S)                                                                             \
  row(#name, code, &run_unpack<T, S>, Lane<Pair<T>>::type, {Type::B32, Type::F32}),
#define ONE(code, name, T, S)                                                                                \
  row(#name, code, &run_one<T, S>, std::is_same_v<T, f32> ? Type::F32 : Type::Half, {Type::B32, Type::F32}),
#include "isa/scale.inc"
#undef PACK
#undef STOCHASTIC
#undef UNPACK
#undef ONE
  };
}

} // namespace emu

// Typed views of vector registers: how a lane's value of each type sits in 32-bit registers.
// A source is copied into 64 typed values (with its modifiers), a result is stored under EXEC. Both are plain
// loops that the compiler turns into vector code; that copy costs some nanoseconds and keeps every meaning
// free of detail.
#pragma once

#include "convert.hpp"
#include "wave.hpp"

namespace emu {

// Values of 16-bit floats travel as f32 and are rounded when stored. The wrappers only mark the type.
struct f16 {
  f32 value;
  operator f32() const { return value; }
  f16() = default;
  f16(f32 v) : value(v) {}
};
struct bf16 {
  f32 value;
  operator f32() const { return value; }
  bf16() = default;
  bf16(f32 v) : value(v) {}
};
struct RawHalf { // the bits of an f16, for instructions that move them and may change the sign
  u16 bits;
};
struct Half { // a 16-bit result that keeps the other half of its register
  u16 bits;
};
template <class T>
struct Pair { // packed instructions: the same operation on two halves (or two registers, for f32)
  T lo, hi;
};
struct Carry { // a result with a bit per lane beside it
  u32 value;
  bool bit;
};

// Lane<T>: registers taken, the Type the decoder uses, and conversion from and to registers.
template <class T> struct Lane;

template <class T, Type kType> struct Lane32 {
  static constexpr int regs = 1;
  static constexpr Type type = kType;
  static T load(u32 lo, u32) { return std::bit_cast<T>(lo); }
  static u64 save(T x) { return std::bit_cast<u32>(x); }
};
template <> struct Lane<u32> : Lane32<u32, Type::B32> {};
template <> struct Lane<i32> : Lane32<i32, Type::B32> {};
template <> struct Lane<f32> : Lane32<f32, Type::F32> {};

template <class T, Type kType> struct Lane64 {
  static constexpr int regs = 2;
  static constexpr Type type = kType;
  static T load(u32 lo, u32 hi) { return std::bit_cast<T>(u64{hi} << 32 | lo); }
  static u64 save(T x) { return std::bit_cast<u64>(x); }
};
template <> struct Lane<u64> : Lane64<u64, Type::B64> {};
template <> struct Lane<i64> : Lane64<i64, Type::B64> {};
template <> struct Lane<f64> : Lane64<f64, Type::F64> {};

template <class T> struct Lane16 {
  static constexpr int regs = 1;
  static constexpr Type type = Type::B16;
  static T load(u32 lo, u32) { return static_cast<T>(lo); }
  static u64 save(T x) { return static_cast<u16>(x); }
};
template <> struct Lane<u16> : Lane16<u16> {};
template <> struct Lane<i16> : Lane16<i16> {};
template <> struct Lane<u8> : Lane16<u8> {}; // the low byte; byte selection is SDWA or op_sel
template <> struct Lane<f16> {
  static constexpr int regs = 1;
  static constexpr Type type = Type::F16;
  static f16 load(u32 lo, u32) { return half_to_float(static_cast<u16>(lo)); }
  static u64 save(f16 x) { return float_to_half(x.value); }
};
template <> struct Lane<RawHalf> {
  static constexpr int regs = 1;
  static constexpr Type type = Type::F16;
  static RawHalf load(u32 lo, u32) { return {static_cast<u16>(lo)}; }
  static u64 save(RawHalf x) { return x.bits; }
};
template <> struct Lane<Half> {
  static constexpr int regs = 1;
  static constexpr Type type = Type::Half;
  static Half load(u32 lo, u32) { return {static_cast<u16>(lo)}; }
  static u64 save(Half x) { return x.bits; }
};
template <> struct Lane<bf16> {
  static constexpr int regs = 1;
  static constexpr Type type = Type::BF16;
  static bf16 load(u32 lo, u32) { return bfloat_to_float(static_cast<u16>(lo)); }
  static u64 save(bf16 x) { return float_to_bfloat(x.value); }
};
template <class T> struct Lane<Pair<T>> {
  static constexpr int regs = 1;
  static constexpr Type type = Lane<T>::type == Type::F16 ? Type::PkF16 : Type::PkB16;
  static Pair<T> load(u32 lo, u32) { return {Lane<T>::load(lo & 0xffff, 0), Lane<T>::load(lo >> 16, 0)}; }
  static u64 save(Pair<T> x) { return Lane<T>::save(x.lo) | Lane<T>::save(x.hi) << 16; }
};
template <> struct Lane<Pair<f32>> {
  static constexpr int regs = 2;
  static constexpr Type type = Type::PkF32;
  static Pair<f32> load(u32 lo, u32 hi) { return {std::bit_cast<f32>(lo), std::bit_cast<f32>(hi)}; }
  static u64 save(Pair<f32> x) { return u64{std::bit_cast<u32>(x.hi)} << 32 | std::bit_cast<u32>(x.lo); }
};

} // namespace emu

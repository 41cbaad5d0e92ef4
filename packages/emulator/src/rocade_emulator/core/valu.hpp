// The engine of vector instructions: fetch sources as typed rows, apply the meaning lane by lane, store under
// EXEC. A meaning is a struct with a static `apply` whose signature says everything: `f32 apply(f32, f32)`.
#pragma once

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lanes.hpp"
#include "modifiers.hpp"
#include "registers.hpp"

namespace emu {

template <class T> using Values = std::array<T, kLanes>;

template <class T>
inline constexpr bool is_float =
    std::is_same_v<T, f32> || std::is_same_v<T, f64> || std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

// Lanes of one instruction do not depend on each other, also where the destination is one of the sources.
#if defined(__clang__)
#define EMU_LANES
#else
#define EMU_LANES _Pragma("GCC ivdep")
#endif

// ---- Sources
// -----------------------------------------------------------------------------------------------------

// A source in all lanes, read where it lies: in the register file, or in `own` when it is a constant, a part
// of a register, or comes with modifiers.
template <class T> struct Source {
  const u32* lo;
  const u32* hi;
  Fetched own;
  T at(int l) const { return Lane<T>::load(lo[l], Lane<T>::regs == 2 ? hi[l] : 0); }
};
template <> struct Source<bool> {
  alignas(64) u32 row[kLanes];
  bool at(int l) const { return row[l] != 0; }
};

// abs, then neg, on the bits of a float.
template <class T> void change_sign(const Operand& op, Fetched& raw) {
  constexpr u32 kSign = Lane<T>::type == Type::F16 || Lane<T>::type == Type::BF16 ? 0x8000u : 0x80000000u;
  u32* row = Lane<T>::regs == 2 ? raw.hi : raw.lo;
  u32 kept = op.absolute ? ~kSign : ~0u, flipped = op.negate ? kSign : 0;
  for (int l = 0; l < kLanes; ++l)
    row[l] = (row[l] & kept) ^ flipped;
}

// Source `k` of an instruction. DPP acts on the first source: `lanes` loses those it does not reach.
template <class T> void open(const Wave& w, const Inst& i, int k, Source<T>& s, u64& lanes) {
  const Operand& op = i.src[k];
  if constexpr (std::is_same_v<T, bool>) {
    spread(read_scalar64(w, op), s.row);
  } else {
    bool dpp = k == 0 && i.dpp.on, changed = op.absolute || op.negate;
    if (op.kind == Kind::Vector && op.select == Select::Dword && !dpp && !changed) {
      s.lo = w.v[op.index];
      s.hi = w.v[op.index + Lane<T>::regs - 1];
      return;
    }
    fetch_raw(w, op, Lane<T>::regs, s.own);
    if (dpp)
      lanes &= apply_dpp(i.dpp, w.exec(), s.own);
    if constexpr (is_float<T> || std::is_same_v<T, RawHalf>)
      if (changed)
        change_sign<T>(op, s.own);
    s.lo = s.own.lo;
    s.hi = s.own.hi;
  }
}

// The same as typed values, for meanings that are more than a function of one lane.
template <class T> void fetch(const Wave& w, const Inst& i, int k, Values<T>& out, u64& lanes) {
  Source<T> s;
  open(w, i, k, s, lanes);
  for (int l = 0; l < kLanes; ++l)
    out[l] = s.at(l);
}

// ---- Results
// -----------------------------------------------------------------------------------------------------

// Store what `value_of(lane)` gives, in `lanes`.
template <class T, class F> void store_each(Wave& w, const Inst& i, u64 lanes, F&& value_of) {
  Fetched raw;
  // Straight into the register when every lane is written whole: a lane's sources are read before it is
  // written.
  constexpr u32 kPartial = Modifiers::kSdwa | Modifiers::kDstHigh | Modifiers::kKeepHigh;
  bool direct = lanes == ~u64{0} && !(i.modifiers & kPartial);
  u32* lo = direct ? w.v[i.dst.index] : raw.lo;
  u32* hi = direct ? w.v[i.dst.index + Lane<T>::regs - 1] : raw.hi;
  EMU_LANES for (int l = 0; l < kLanes; ++l) {
    u64 bits = Lane<T>::save(value_of(l));
    lo[l] = static_cast<u32>(bits);
    if constexpr (Lane<T>::regs == 2)
      hi[l] = static_cast<u32>(bits >> 32);
  }
  if (!direct)
    store_rows(w, i, raw.lo, Lane<T>::regs == 2 ? raw.hi : nullptr, lanes);
}

template <class T> void store(Wave& w, const Inst& i, Values<T>& values, u64 lanes) {
  if constexpr (is_float<T>)
    apply_output_modifiers(i, values);
  store_each<T>(w, i, lanes, [&](int l) { return values[l]; });
}

// Results of all kinds: masks go to scalar registers, carries to both.
template <class T, class F> void finish(Wave& w, const Inst& i, u64 lanes, F&& value_of) {
  if constexpr (std::is_same_v<T, bool>) {
    Flags flags;
    for (int l = 0; l < kLanes; ++l)
      flags[l] = value_of(l);
    write_scalar64(w, i.dst, mask_of(flags) & lanes);
  } else if constexpr (std::is_same_v<T, Carry>) {
    Values<u32> sums;
    Flags flags;
    for (int l = 0; l < kLanes; ++l) {
      Carry c = value_of(l);
      sums[l] = c.value;
      flags[l] = c.bit;
    }
    store(w, i, sums, lanes);
    write_scalar64(w, i.dst2, mask_of(flags) & lanes);
  } else {
    if (is_float<T> && has(i, Modifiers::kClamp)) {
      Values<T> values;
      for (int l = 0; l < kLanes; ++l)
        values[l] = value_of(l);
      return store(w, i, values, lanes);
    }
    store_each<T>(w, i, lanes, value_of);
  }
}

// ---- One instruction
// -----------------------------------------------------------------------------------------------

template <class F> struct Signature;
template <class R, class... Args> struct Signature<R (*)(Args...)> {
  using Result = R;
  using Sources = std::tuple<Source<Args>...>;
  template <std::size_t K> using Argument = std::tuple_element_t<K, std::tuple<Args...>>;
  static constexpr std::size_t arity = sizeof...(Args);
};

template <class Op> void run_valu(Wave& w, const Inst& i) {
  using Sig = Signature<decltype(&Op::apply)>;
  typename Sig::Sources sources;
  u64 lanes = w.exec();
  [&]<std::size_t... K>(std::index_sequence<K...>) {
    (open(w, i, K, std::get<K>(sources), lanes), ...);
    finish<typename Sig::Result>(w, i, lanes,
                                 [&](int l) { return Op::apply(std::get<K>(sources).at(l)...); });
  }(std::make_index_sequence<Sig::arity>{});
}

} // namespace emu

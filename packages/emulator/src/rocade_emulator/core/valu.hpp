// The engine of vector instructions: fetch sources as typed rows, apply the meaning lane by lane, store under EXEC.
// A meaning is a struct with a static `apply` whose signature says everything: `f32 apply(f32, f32)`.
#pragma once

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lanes.hpp"
#include "modifiers.hpp"

namespace emu {

template <class T>
using Values = std::array<T, kLanes>;

template <class T>
inline constexpr bool is_float = std::is_same_v<T, f32> || std::is_same_v<T, f64> || std::is_same_v<T, f16>;

// ---- Sources -----------------------------------------------------------------------------------------------------

// Lanes that a DPP source does not reach keep their old destination; `reach` is the mask of those it does.
struct Fetched {
  alignas(64) u32 lo[kLanes];
  alignas(64) u32 hi[kLanes];
};

// Raw register contents of an operand, broadcast when scalar, with DPP and sub-register selection applied.
void fetch_raw(const Wave& w, const Operand& op, int regs, Fetched& out);

template <class T>
void fetch(const Wave& w, const Operand& op, Values<T>& out) {
  if constexpr (std::is_same_v<T, bool>) {
    u64 mask = scalar_mask(w, op);
    for (int l = 0; l < kLanes; ++l) out[l] = mask >> l & 1;
  } else {
    Fetched raw;
    fetch_raw(w, op, Lane<T>::regs, raw);
    for (int l = 0; l < kLanes; ++l) out[l] = Lane<T>::load(raw.lo[l], raw.hi[l]);
    if constexpr (is_float<T>) {
      if (op.absolute)
        for (auto& x : out) x = absolute(x);
      if (op.negate)
        for (auto& x : out) x = negate(x);
    }
  }
}

// ---- Results -----------------------------------------------------------------------------------------------------

void store_mask(Wave& w, const Operand& dst, u64 mask);
void store_rows(Wave& w, const Inst& i, const u32* lo, const u32* hi, u64 lanes);

template <class T>
void store(Wave& w, const Inst& i, Values<T>& values, u64 lanes) {
  if constexpr (std::is_same_v<T, bool>) {
    u64 mask = 0;
    for (int l = 0; l < kLanes; ++l) mask |= u64{values[l]} << l;
    store_mask(w, i.dst, mask & lanes);
  } else if constexpr (std::is_same_v<T, Carry>) {
    u64 mask = 0;
    Fetched raw;
    for (int l = 0; l < kLanes; ++l) {
      raw.lo[l] = values[l].value;
      mask |= u64{values[l].bit} << l;
    }
    store_rows(w, i, raw.lo, nullptr, lanes);
    store_mask(w, i.dst2, mask & lanes);
  } else {
    if constexpr (is_float<T>) apply_output_modifiers(i, values);
    Fetched raw;
    for (int l = 0; l < kLanes; ++l) {
      u64 bits = Lane<T>::save(values[l]);
      raw.lo[l] = static_cast<u32>(bits);
      raw.hi[l] = static_cast<u32>(bits >> 32);
    }
    store_rows(w, i, raw.lo, Lane<T>::regs == 2 ? raw.hi : nullptr, lanes);
  }
}

// ---- One instruction -----------------------------------------------------------------------------------------------

template <class F>
struct Signature;
template <class R, class... Args>
struct Signature<R (*)(Args...)> {
  using Result = R;
  using Sources = std::tuple<Values<Args>...>;
  static constexpr std::size_t arity = sizeof...(Args);
};

template <class Op>
void run_valu(Wave& w, const Inst& i) {
  using Sig = Signature<decltype(&Op::apply)>;
  typename Sig::Sources sources;
  u64 lanes = w.exec();
  [&]<std::size_t... K>(std::index_sequence<K...>) {
    (fetch(w, i.src[K], std::get<K>(sources)), ...);
  }(std::make_index_sequence<Sig::arity>{});
  if (i.dpp.on) lanes &= apply_dpp(i.dpp, w.exec(), std::get<0>(sources));
  Values<typename Sig::Result> result;
  [&]<std::size_t... K>(std::index_sequence<K...>) {
    for (int l = 0; l < kLanes; ++l) result[l] = Op::apply(std::get<K>(sources)[l]...);
  }(std::make_index_sequence<Sig::arity>{});
  store(w, i, result, lanes);
}

}  // namespace emu

// The engine of vector instructions: fetch sources as typed rows, apply the meaning lane by lane, store under EXEC.
// A meaning is a struct with a static `apply` whose signature says everything: `f32 apply(f32, f32)`.
#pragma once

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lanes.hpp"
#include "modifiers.hpp"
#include "registers.hpp"

namespace emu {

template <class T>
using Values = std::array<T, kLanes>;

template <class T>
inline constexpr bool is_float =
    std::is_same_v<T, f32> || std::is_same_v<T, f64> || std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

// ---- Sources -----------------------------------------------------------------------------------------------------

// Source `k` of an instruction as typed values. DPP acts on the first source: `lanes` loses those it does not reach.
template <class T>
void fetch(const Wave& w, const Inst& i, int k, Values<T>& out, u64& lanes) {
  const Operand& op = i.src[k];
  if constexpr (std::is_same_v<T, bool>) {
    u64 mask = read_scalar64(w, op);
    for (int l = 0; l < kLanes; ++l) out[l] = mask >> l & 1;
  } else {
    Fetched raw;
    fetch_raw(w, op, Lane<T>::regs, raw);
    if (k == 0 && i.dpp.on) lanes &= apply_dpp(i.dpp, w.exec(), raw);
    for (int l = 0; l < kLanes; ++l) out[l] = Lane<T>::load(raw.lo[l], raw.hi[l]);
    if constexpr (is_float<T> || std::is_same_v<T, RawHalf>) {
      if (op.absolute)
        for (auto& x : out) x = absolute(x);
      if (op.negate)
        for (auto& x : out) x = negate(x);
    }
  }
}

// ---- Results -----------------------------------------------------------------------------------------------------

template <class T>
void store(Wave& w, const Inst& i, Values<T>& values, u64 lanes) {
  if constexpr (std::is_same_v<T, bool>) {
    u64 mask = 0;
    for (int l = 0; l < kLanes; ++l) mask |= u64{values[l]} << l;
    write_scalar64(w, i.dst, mask & lanes);
  } else if constexpr (std::is_same_v<T, Carry>) {
    u64 mask = 0;
    Fetched raw;
    for (int l = 0; l < kLanes; ++l) {
      raw.lo[l] = values[l].value;
      mask |= u64{values[l].bit} << l;
    }
    store_rows(w, i, raw.lo, nullptr, lanes);
    write_scalar64(w, i.dst2, mask & lanes);
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
    (fetch(w, i, K, std::get<K>(sources), lanes), ...);
  }(std::make_index_sequence<Sig::arity>{});
  Values<typename Sig::Result> result;
  [&]<std::size_t... K>(std::index_sequence<K...>) {
    for (int l = 0; l < kLanes; ++l) result[l] = Op::apply(std::get<K>(sources)[l]...);
  }(std::make_index_sequence<Sig::arity>{});
  store(w, i, result, lanes);
}

}  // namespace emu

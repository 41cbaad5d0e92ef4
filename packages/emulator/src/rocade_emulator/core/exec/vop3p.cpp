// Executors of VOP3P other than the matrix instructions: the rows of isa/vop3p.inc.
// op_sel picks, per source, the half that feeds the low result; op_sel_hi the half that feeds the high
// result.
#include "rows.hpp"

namespace emu {
namespace {

// A packed source: where the halves (or, for f32, the registers) that feed the low and the high result lie.
template <class T> struct Halved {
  const u32 *lo, *hi;
  u32 shift_lo = 0, shift_hi = 0, flip_lo = 0, flip_hi = 0;
  Fetched own;

  static T load(u32 bits) {
    return Lane<T>::load(sizeof(T) == 4 && std::is_same_v<T, f32> ? bits : bits & 0xffff, 0);
  }
  T low(int l) const { return load(lo[l] >> shift_lo ^ flip_lo); }
  T high(int l) const { return load(hi[l] >> shift_hi ^ flip_hi); }
};

template <class T> void open_halves(const Wave& w, const Inst& i, int k, Halved<T>& s) {
  constexpr bool kPairOfRegisters = std::is_same_v<T, f32>;
  const Operand& op = i.src[k];
  bool in_place = op.kind == Kind::Vector && op.select == Select::Dword;
  if (!in_place)
    fetch_raw(w, op, kPairOfRegisters ? 2 : 1, s.own);
  const u32* rows[2] = {in_place ? w.v[op.index] : s.own.lo,
                        in_place ? w.v[op.index + kPairOfRegisters] : s.own.hi};
  bool upper[2] = {(i.modifiers >> Modifiers::kOpSelShift >> k & 1) != 0,
                   (i.modifiers >> Modifiers::kOpSelHiShift >> k & 1) != 0};
  s.lo = rows[kPairOfRegisters && upper[0]];
  s.hi = rows[kPairOfRegisters && upper[1]];
  if (!kPairOfRegisters)
    s.shift_lo = 16 * upper[0], s.shift_hi = 16 * upper[1];
  if (!is_float<T>)
    return;
  constexpr u32 kSign = kPairOfRegisters ? 0x80000000u : 0x8000u;
  if (op.negate)
    s.flip_lo = kSign;
  if (i.modifiers >> Modifiers::kNegHiShift >> k & 1)
    s.flip_hi = kSign;
}

template <class Op> void run_packed(Wave& w, const Inst& i) {
  using Sig = Signature<decltype(&Op::apply)>;
  using T = typename Sig::Result;
  [&]<std::size_t... K>(std::index_sequence<K...>) {
    std::tuple<Halved<typename Sig::template Argument<K>>...> sources;
    (open_halves(w, i, K, std::get<K>(sources)), ...);
    auto pair = [&](int l) {
      return Pair<T>{Op::apply(std::get<K>(sources).low(l)...), Op::apply(std::get<K>(sources).high(l)...)};
    };
    if (!is_float<T> || !has(i, Modifiers::kClamp))
      return store_each<Pair<T>>(w, i, w.exec(), pair);
    Values<T> lo, hi;
    for (int l = 0; l < kLanes; ++l)
      lo[l] = pair(l).lo, hi[l] = pair(l).hi;
    if constexpr (is_float<T>)
      apply_output_modifiers(i, lo), apply_output_modifiers(i, hi);
    store_each<Pair<T>>(w, i, w.exec(), [&](int l) { return Pair<T>{lo[l], hi[l]}; });
  }(std::make_index_sequence<Sig::arity>{});
}

// v_pk_mov_b32: op_sel[k] picks the register of source k; there is no arithmetic.
void run_pk_mov(Wave& w, const Inst& i) {
  Fetched a, b;
  fetch_raw(w, i.src[0], 2, a);
  fetch_raw(w, i.src[1], 2, b);
  u32 select = field(i, Modifiers::kOpSelShift, 3);
  store_rows(w, i, select & 1 ? a.hi : a.lo, select & 2 ? b.hi : b.lo, w.exec());
}

// Mixed precision: op_sel_hi[k] says that source k is f16, op_sel[k] which half; else it is f32. abs is in
// neg_hi.
void fetch_mixed(const Wave& w, const Inst& i, int k, Values<f32>& out) {
  Fetched raw;
  fetch_raw(w, i.src[k], 1, raw);
  bool half = i.modifiers >> Modifiers::kOpSelHiShift >> k & 1,
       upper = i.modifiers >> Modifiers::kOpSelShift >> k & 1;
  bool magnitude = i.modifiers >> Modifiers::kNegHiShift >> k & 1;
  for (int l = 0; l < kLanes; ++l) {
    f32 x =
        half ? half_to_float(static_cast<u16>(raw.lo[l] >> (upper ? 16 : 0))) : std::bit_cast<f32>(raw.lo[l]);
    x = magnitude ? std::fabs(x) : x;
    out[l] = i.src[k].negate ? -x : x;
  }
}

enum class Mix { Full, Low, High };
template <Mix kMix> void run_mix(Wave& w, const Inst& i) {
  Values<f32> a, b, c;
  fetch_mixed(w, i, 0, a);
  fetch_mixed(w, i, 1, b);
  fetch_mixed(w, i, 2, c);
  for (int l = 0; l < kLanes; ++l)
    a[l] = std::fma(a[l], b[l], c[l]);
  apply_output_modifiers(i, a);
  Fetched raw;
  const u32* old = w.v[i.dst.index];
  for (int l = 0; l < kLanes; ++l) {
    u32 half = float_to_half(a[l]);
    raw.lo[l] = kMix == Mix::Full  ? std::bit_cast<u32>(a[l])
                : kMix == Mix::Low ? (old[l] & 0xffff0000u) | half
                                   : (old[l] & 0xffffu) | half << 16;
  }
  store_rows(w, i, raw.lo, nullptr, w.exec());
}

void run_acc_move(Wave& w, const Inst& i) {
  Fetched raw;
  fetch_raw(w, i.src[0], 1, raw);
  store_rows(w, i, raw.lo, nullptr, w.exec());
}

namespace op {
#define PK(code, name, T, ARGS, ...)                                                                         \
  struct name {                                                                                              \
    static T apply ARGS { return __VA_ARGS__; }                                                              \
  };
#define PK950 PK
#define DOT PK
#define DOT950 PK
#define MIX(...)
#define PK_MOV(...)
#define ACC_READ(...)
#define ACC_WRITE(...)
#include "isa/vop3p.inc"
#undef PK
#undef PK950
#undef DOT
#undef DOT950
#undef MIX
#undef PK_MOV
#undef ACC_READ
#undef ACC_WRITE
} // namespace op

template <class Op> OpInfo packed_row(const char* name, int code, Target target) {
  OpInfo row = describe(&Op::apply, name, Format::Vop3p, Unit::Valu, code, target, &run_packed<Op>);
  auto packed = [](Type t) {
    return t == Type::F32 ? Type::PkF32 : t == Type::F16 ? Type::PkF16 : t == Type::None ? t : Type::PkB16;
  };
  row.dst = packed(row.dst);
  for (Type& t : row.src)
    t = packed(t);
  return row;
}
template <class Op> OpInfo dot_row(const char* name, int code, Target target) {
  return valu_row<Op>(name, Format::Vop3p, Unit::Valu, code, target);
}
OpInfo plain(const char* name, int code, Exec exec, Type dst, std::initializer_list<Type> sources) {
  return special_row(name, Format::Vop3p, Unit::Valu, code, Target::Both, exec, dst, sources);
}

} // namespace

std::vector<OpInfo> vop3p_rows() {
  return {
#define PK(code, name, ...) packed_row<op::name>(#name, code, Target::Both),
#define PK950(code, name, ...) packed_row<op::name>(#name, code, Target::Gfx950),
#define DOT(code, name, ...) dot_row<op::name>(#name, code, Target::Both),
#define DOT950(code, name, ...) dot_row<op::name>(#name, code, Target::Gfx950),
#define MIX(...)
#define PK_MOV(code, name) plain(#name, code, &run_pk_mov, Type::B64, {Type::B64, Type::B64}),
#define ACC_READ(code, name) plain(#name, code, &run_acc_move, Type::B32, {Type::B32}),
#define ACC_WRITE ACC_READ
#include "isa/vop3p.inc"
#undef PK
#undef PK950
#undef DOT
#undef DOT950
#undef MIX
#undef PK_MOV
#undef ACC_READ
#undef ACC_WRITE
      plain("v_fma_mix_f32", 32, &run_mix<Mix::Full>, Type::F32, {Type::F32, Type::F32, Type::F32}),
      plain("v_fma_mixlo_f16", 33, &run_mix<Mix::Low>, Type::F16, {Type::F32, Type::F32, Type::F32}),
      plain("v_fma_mixhi_f16", 34, &run_mix<Mix::High>, Type::F16, {Type::F32, Type::F32, Type::F32}),
  };
}

} // namespace emu

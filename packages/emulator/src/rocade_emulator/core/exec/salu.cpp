// Executors of the scalar formats SOP1, SOP2, SOPC and SOPK: rows of isa/sop1.inc, sop2.inc, sopc.inc,
// sopk.inc.
#include <algorithm>
#include <type_traits>

#include "control.hpp"
#include "meaning.hpp"
#include "registers.hpp"
#include "table.hpp"

namespace emu {
namespace {

constexpr int KEEP = -1; // SCC stays

template <class T> T read(const Wave& w, const Operand& op) {
  if constexpr (sizeof(T) == 8)
    return static_cast<T>(read_scalar64(w, op));
  else
    return static_cast<T>(read_scalar(w, op));
}
template <class T> void write(Wave& w, const Operand& dst, T value) {
  if constexpr (sizeof(T) == 8)
    write_scalar64(w, dst, static_cast<u64>(value));
  else
    write_scalar(w, dst, static_cast<u32>(value));
}
template <class T> constexpr Type scalar_type = sizeof(T) == 8 ? Type::B64 : Type::B32;

void set_scc(Wave& w, int value) {
  if (value != KEEP)
    w.scc = value;
}

bool overflows(u32 a, u32 b, u32 r) { return (~(a ^ b) & (a ^ r)) >> 31; }
i32 wrap(i64 x) { return static_cast<i32>(static_cast<u32>(x)); }
u32 unsigned_of(i32 x) { return static_cast<u32>(x); }
i32 magnitude(i32 x) { return x < 0 ? wrap(-i64{x}) : x; }

// One bit for each four lanes that have any; and those lanes as a whole.
template <class T> T quads(T mask) {
  T out = 0;
  for (u32 k = 0; k < sizeof(T) * 2; ++k)
    out |= T{(mask >> 4 * k & 15) != 0} << k;
  return out;
}
template <class T> T whole_quads(T mask) {
  T out = 0;
  for (u32 k = 0; k < sizeof(T) * 8; k += 4)
    out |= (mask >> k & 15) != 0 ? T{15} << k : 0;
  return out;
}
u64 doubled_bits(u32 x) {
  u64 out = 0;
  for (u32 k = 0; k < 32; ++k)
    out |= u64{x >> k & 1} * 3 << 2 * k;
  return out;
}
u32 low16(i32 k) { return static_cast<u16>(k); }

// Bit field with a width of up to the operand's own; signed types extend the sign.
template <class T> T field(T a, u32 offset, u32 width) {
  constexpr u32 kBits = sizeof(T) * 8;
  if (width == 0)
    return 0;
  if (offset + width >= kBits)
    return a >> offset;
  using Unsigned = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<T>(static_cast<Unsigned>(a) << (kBits - offset - width)) >>
                        (kBits - width));
}

OpInfo row(const char* name, Format f, int code, Exec exec, Type dst, std::initializer_list<Type> sources,
           Unit unit = Unit::Salu) {
  OpInfo info{name, f, unit, static_cast<u16>(code), Target::Both, exec, dst, Type::None, {}};
  int k = 0;
  for (Type t : sources)
    info.src[k++] = t;
  return info;
}

// ---- SOP2 ----
namespace sop2 {
#define S2_WITH(name, T, A, B, value, carry)                                                                 \
  void name(Wave& w, const Inst& i) {                                                                        \
    [[maybe_unused]] bool scc = w.scc;                                                                       \
    [[maybe_unused]] auto a = read<A>(w, i.src[0]);                                                          \
    [[maybe_unused]] auto b = read<B>(w, i.src[1]);                                                          \
    T r = value;                                                                                             \
    write(w, i.dst, r);                                                                                      \
    set_scc(w, static_cast<int>(carry));                                                                     \
  }
#define S2(code, name, T, value, carry) S2_WITH(name, T, T, T, value, carry)
#define S2_SHIFT64(code, name, T, value, carry) S2_WITH(name, T, T, u32, value, carry)
#define S2_FROM32(code, name, T, value, carry) S2_WITH(name, T, u32, u32, value, carry)
#include "isa/sop2.inc"
#undef S2
#undef S2_SHIFT64
#undef S2_FROM32
} // namespace sop2

// ---- SOP1 ----
namespace sop1 {
#define S1(code, name, R, T, value, carry)                                                                   \
  void name(Wave& w, const Inst& i) {                                                                        \
    T a = read<T>(w, i.src[0]);                                                                              \
    R r = static_cast<R>(value);                                                                             \
    write(w, i.dst, r);                                                                                      \
    set_scc(w, static_cast<int>(carry));                                                                     \
  }
#define S1_OLD(code, name, R, T, value, carry)                                                               \
  void name(Wave& w, const Inst& i) {                                                                        \
    [[maybe_unused]] bool scc = w.scc;                                                                       \
    T a = read<T>(w, i.src[0]);                                                                              \
    R old = read<R>(w, i.dst);                                                                               \
    write(w, i.dst, static_cast<R>(value));                                                                  \
  }
#define SAVE_WITH(name, value, saved)                                                                        \
  void name(Wave& w, const Inst& i) {                                                                        \
    u64 a = read_scalar64(w, i.src[0]), exec = w.exec();                                                     \
    u64 next = value;                                                                                        \
    write_scalar64(w, i.dst, saved);                                                                         \
    w.set_exec(next);                                                                                        \
    w.scc = next != 0;                                                                                       \
  }
#define SAVE(code, name, value) SAVE_WITH(name, value, exec)
#define WREXEC(code, name, value) SAVE_WITH(name, value, next)
#define JUMP(code, name)
#include "isa/sop1.inc"
#undef S1
#undef S1_OLD
#undef SAVE
#undef WREXEC
#undef JUMP

// Addresses of code are real ones: text base + byte offset, so that a kernel may add to them.
void s_getpc_b64(Wave& w, const Inst& i) { write_scalar64(w, i.dst, code_address(w, i.pc + i.size)); }
void s_setpc_b64(Wave& w, const Inst& i) { jump_to_address(w, i, read_scalar64(w, i.src[0])); }
void s_swappc_b64(Wave& w, const Inst& i) {
  u64 target = read_scalar64(w, i.src[0]);
  write_scalar64(w, i.dst, code_address(w, i.pc + i.size));
  jump_to_address(w, i, target);
}
} // namespace sop1

// ---- SOPC ----
namespace sopc {
#define SC_WITH(name, T, B, value)                                                                           \
  void name(Wave& w, const Inst& i) {                                                                        \
    T a = read<T>(w, i.src[0]);                                                                              \
    B b = read<B>(w, i.src[1]);                                                                              \
    w.scc = value;                                                                                           \
  }
#define SC(code, name, T, value) SC_WITH(name, T, T, value)
#define SC_BIT64(code, name, value) SC_WITH(name, u64, u32, value)
#include "isa/sopc.inc"
#undef SC
#undef SC_BIT64
} // namespace sopc

// ---- SOPK ----
namespace sopk {
#define SK(code, name, value, carry)                                                                         \
  void name(Wave& w, const Inst& i) {                                                                        \
    [[maybe_unused]] bool scc = w.scc;                                                                       \
    i32 k = static_cast<i32>(i.simm);                                                                        \
    [[maybe_unused]] i32 a = read<i32>(w, i.dst);                                                            \
    i32 r = value;                                                                                           \
    write(w, i.dst, r);                                                                                      \
    set_scc(w, static_cast<int>(carry));                                                                     \
  }
#define SKC(code, name, value)                                                                               \
  void name(Wave& w, const Inst& i) {                                                                        \
    i32 k = static_cast<i32>(i.simm), a = read<i32>(w, i.src[0]);                                            \
    w.scc = value;                                                                                           \
  }
#include "isa/sopk.inc"
#undef SK
#undef SKC

// Hardware registers by simm16: number in [5:0], first bit in [10:6], width - 1 in [15:11].
constexpr u32 kModeRegister = 1, kXccId = 20, kHardwareId = 4;
struct Slice {
  u32 number, shift, mask;
};
Slice slice_of(const Inst& i) {
  u32 width = (i.simm >> 11 & 31) + 1;
  return {i.simm & 63, i.simm >> 6 & 31, static_cast<u32>((u64{1} << width) - 1)};
}
void s_getreg_b32(Wave& w, const Inst& i) {
  Slice s = slice_of(i);
  bool known = s.number == kModeRegister || s.number == kXccId || s.number == kHardwareId;
  if (!known)
    fail(w, i, "read of hardware register " + std::to_string(s.number) + ", which is not modelled");
  u32 value = s.number == kModeRegister ? w.mode : 0; // there is one XCC, and one compute unit
  write_scalar(w, i.dst, value >> s.shift & s.mask);
}
// Rounding and denormals are fixed: a write must leave them as they are.
void s_setreg_b32(Wave& w, const Inst& i) {
  Slice s = slice_of(i);
  if (s.number != kModeRegister)
    fail(w, i, "write to hardware register " + std::to_string(s.number) + ", which is not modelled");
  u32 bits = s.mask << s.shift, next = (w.mode & ~bits) | (read_scalar(w, i.src[0]) << s.shift & bits);
  if ((next ^ kStartMode) & kModelledMode)
    fail(w, i, "a rounding, denormal, clamp or IEEE mode that is not modelled");
  w.mode = next;
}
void s_call_b64(Wave& w, const Inst& i) {
  write_scalar64(w, i.dst, code_address(w, i.pc + i.size));
  jump_to_offset(w, i, i.offset);
}
} // namespace sopk

} // namespace

std::vector<OpInfo> sop2_rows() {
  return {
#define S2(code, name, T, ...)                                                                               \
  row(#name, Format::Sop2, code, &sop2::name, scalar_type<T>, {scalar_type<T>, scalar_type<T>}),
#define S2_SHIFT64(code, name, T, ...)                                                                       \
  row(#name, Format::Sop2, code, &sop2::name, scalar_type<T>, {scalar_type<T>, Type::B32}),
#define S2_FROM32(code, name, T, ...)                                                                        \
  row(#name, Format::Sop2, code, &sop2::name, scalar_type<T>, {Type::B32, Type::B32}),
#include "isa/sop2.inc"
#undef S2
#undef S2_SHIFT64
#undef S2_FROM32
  };
}

std::vector<OpInfo> sop1_rows() {
  return {
#define S1(code, name, R, T, ...)                                                                            \
  row(#name, Format::Sop1, code, &sop1::name, scalar_type<R>, {scalar_type<T>}),
#define S1_OLD S1
#define SAVE(code, name, ...) row(#name, Format::Sop1, code, &sop1::name, Type::B64, {Type::B64}),
#define WREXEC SAVE
#define JUMP(code, name)
#include "isa/sop1.inc"
#undef S1
#undef S1_OLD
#undef SAVE
#undef WREXEC
#undef JUMP
      row("s_getpc_b64", Format::Sop1, 28, &sop1::s_getpc_b64, Type::B64, {}),
      row("s_setpc_b64", Format::Sop1, 29, &sop1::s_setpc_b64, Type::None, {Type::B64}, Unit::Branch),
      row("s_swappc_b64", Format::Sop1, 30, &sop1::s_swappc_b64, Type::B64, {Type::B64}, Unit::Branch),
  };
}

std::vector<OpInfo> sopc_rows() {
  return {
#define SC(code, name, T, ...)                                                                               \
  row(#name, Format::Sopc, code, &sopc::name, Type::None, {scalar_type<T>, scalar_type<T>}),
#define SC_BIT64(code, name, ...)                                                                            \
  row(#name, Format::Sopc, code, &sopc::name, Type::None, {Type::B64, Type::B32}),
#include "isa/sopc.inc"
#undef SC
#undef SC_BIT64
  };
}

std::vector<OpInfo> sopk_rows() {
  return {
#define SK(code, name, ...) row(#name, Format::Sopk, code, &sopk::name, Type::B32, {}),
#define SKC(code, name, ...) row(#name, Format::Sopk, code, &sopk::name, Type::None, {Type::B32}),
#include "isa/sopk.inc"
#undef SK
#undef SKC
      row("s_getreg_b32", Format::Sopk, 17, &sopk::s_getreg_b32, Type::B32, {}),
      row("s_setreg_b32", Format::Sopk, 18, &sopk::s_setreg_b32, Type::None, {Type::B32}),
      row("s_setreg_imm32_b32", Format::Sopk, 20, &sopk::s_setreg_b32, Type::None, {Type::B32}),
      row("s_call_b64", Format::Sopk, 21, &sopk::s_call_b64, Type::B64, {}, Unit::Branch),
  };
}

} // namespace emu

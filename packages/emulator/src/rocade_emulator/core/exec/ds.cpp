// Executors of DS: the rows of isa/ds.inc. All count in lgkmcnt and retire in order.
#include <algorithm>

#include "counters.hpp"
#include "data.hpp"
#include "lds.hpp"
#include "meaning.hpp"
#include "registers.hpp"
#include "table.hpp"
#include "waits.hpp"

namespace emu {
namespace {

using b32 = u32;
using b64 = u64;

u32 address_of(const Wave& w, const Inst& i, int lane, i64 offset) {
  return w.v[i.src[0].index][lane] + static_cast<u32>(offset);
}

template <class F> void each_lane(const Wave& w, F&& f) {
  for (u64 m = w.exec(); m; m &= m - 1)
    f(std::countr_zero(m));
}

void issue_read(Wave& w, const Inst& i) {
  issue_lgkm(w, {.pc = w.pc, .first = i.dst.index, .count = i.dst.count});
}
void issue_write(Wave& w) { issue_lgkm(w, {.pc = w.pc}); }

// Addresses of all lanes, taken before anything is written: a destination may hold them.
struct LaneAddresses {
  alignas(64) u32 at[kLanes];
  LaneAddresses(const Wave& w, const Inst& i, i64 offset) {
    const u32* row = w.v[i.src[0].index];
    for (int l = 0; l < kLanes; ++l)
      at[l] = row[l] + static_cast<u32>(offset);
  }
};

constexpr u8 kZero[16] = {};

// One element of kBytes a lane into the registers from `reg`.
template <u32 kBytes> void read_element(Wave& w, const Inst& i, const LaneAddresses& a, int reg, Fill fill) {
  const u8* lds = w.group->lds.data();
  if (read_lds<kBytes>(w, a.at))
    each_lane(w, [&](int l) { load_lane(w, reg, l, lds + a.at[l], kBytes, fill); });
  else
    each_lane(w, [&](int l) {
      const u8* from = touch_lds(w, i, l, a.at[l], kBytes, Access::Read);
      load_lane(w, reg, l, from ? from : kZero, kBytes, fill);
    });
  count_lds(w, a.at, w.exec(), kBytes, LdsUse::Read);
}
template <u32 kBytes> void write_element(Wave& w, const Inst& i, const LaneAddresses& a, int reg, u32 shift) {
  u8* lds = w.group->lds.data();
  if (write_lds<kBytes>(w, a.at, w.exec()))
    each_lane(w, [&](int l) { store_lane(w, reg, l, lds + a.at[l], kBytes, shift); });
  else
    each_lane(w, [&](int l) {
      u8 data[16];
      store_lane(w, reg, l, data, kBytes, shift);
      if (u8* to = touch_lds(w, i, l, a.at[l], kBytes, Access::Write, data))
        std::memcpy(to, data, kBytes);
    });
  count_lds(w, a.at, w.exec(), kBytes, LdsUse::Write);
}

template <u32 kBytes, Fill kFill> void run_read(Wave& w, const Inst& i) {
  read_element<kBytes>(w, i, LaneAddresses(w, i, i.offset), i.dst.index, kFill);
  issue_read(w, i);
}
// The two offsets of the forms with two elements.
template <u32 kBytes, u32 kStride> i64 offset_of(const Inst& i, int element) {
  return (i.offset >> 8 * element & 0xff) * i64{kBytes * kStride};
}
template <u32 kBytes, u32 kStride> void run_read2(Wave& w, const Inst& i) {
  const LaneAddresses first(w, i, offset_of<kBytes, kStride>(i, 0)),
      second(w, i, offset_of<kBytes, kStride>(i, 1));
  read_element<kBytes>(w, i, first, i.dst.index, Fill::Whole);
  read_element<kBytes>(w, i, second, i.dst.index + static_cast<int>(kBytes / 4), Fill::Whole);
  issue_read(w, i);
}
template <u32 kBytes, u32 kShift> void run_write(Wave& w, const Inst& i) {
  write_element<kBytes>(w, i, LaneAddresses(w, i, i.offset), i.src[1].index, kShift);
  issue_write(w);
}
template <u32 kBytes, u32 kStride> void run_write2(Wave& w, const Inst& i) {
  for (int k = 0; k < 2; ++k)
    write_element<kBytes>(w, i, LaneAddresses(w, i, offset_of<kBytes, kStride>(i, k)), i.src[1 + k].index, 0);
  issue_write(w);
}

template <class Op, bool kReturns> void run_atomic(Wave& w, const Inst& i) {
  using T = typename Op::Value;
  u32 addresses[kLanes];
  each_lane(w, [&](int l) {
    addresses[l] = address_of(w, i, l, i.offset);
    u8* at = touch_lds(w, i, l, addresses[l], sizeof(T), Access::Atomic);
    T old{}, x{}, y{};
    if (at)
      std::memcpy(&old, at, sizeof(T));
    store_lane(w, i.src[1].index, l, reinterpret_cast<u8*>(&x), sizeof(T), 0);
    if (Op::kTwo)
      store_lane(w, i.src[2].index, l, reinterpret_cast<u8*>(&y), sizeof(T), 0);
    T next = Op::apply(old, x, y);
    if (at)
      std::memcpy(at, &next, sizeof(T));
    if (kReturns)
      load_lane(w, i.dst.index, l, reinterpret_cast<const u8*>(&old), sizeof(T), Fill::Whole);
  });
  count_lds(w, addresses, w.exec(), sizeof(T), LdsUse::Write);
  if (kReturns)
    issue_read(w, i);
  else
    issue_write(w);
}

// Two exchanges at two addresses; the old values fill the destination in order.
template <u32 kBytes, u32 kStride> void run_exchange2(Wave& w, const Inst& i) {
  constexpr int kRegs = static_cast<int>(kBytes / 4);
  u32 addresses[2][kLanes];
  each_lane(w, [&](int l) {
    u8 old[2][8] = {};
    for (int k = 0; k < 2; ++k) {
      addresses[k][l] = address_of(w, i, l, (i.offset >> 8 * k & 0xff) * kBytes * kStride);
      u8* at = touch_lds(w, i, l, addresses[k][l], kBytes, Access::Atomic);
      if (!at)
        continue;
      std::memcpy(old[k], at, kBytes);
      store_lane(w, i.src[1 + k].index, l, at, kBytes, 0);
    }
    for (int k = 0; k < 2; ++k)
      load_lane(w, i.dst.index + k * kRegs, l, old[k], kBytes, Fill::Whole);
  });
  for (auto& a : addresses)
    count_lds(w, a, w.exec(), kBytes, LdsUse::Write);
  issue_read(w, i);
}

// ds_permute pushes to lane address / 4, ds_bpermute pulls from it; inactive lanes give 0 and receive
// nothing.
void ds_permute_b32(Wave& w, const Inst& i) {
  Row out = {};
  each_lane(w, [&](int l) { out[address_of(w, i, l, i.offset) >> 2 & 63] = w.v[i.src[1].index][l]; });
  each_lane(w, [&](int l) { w.v[i.dst.index][l] = out[l]; });
  issue_read(w, i);
}
void ds_bpermute_b32(Wave& w, const Inst& i) {
  Row out = {};
  each_lane(w, [&](int l) {
    int from = static_cast<int>(address_of(w, i, l, i.offset) >> 2 & 63);
    out[l] = w.exec() >> from & 1 ? w.v[i.src[1].index][from] : 0;
  });
  each_lane(w, [&](int l) { w.v[i.dst.index][l] = out[l]; });
  issue_read(w, i);
}
// Offset bit 15: quad permutation by 2-bit fields; else and/or/xor masks on the lane number within 32.
void ds_swizzle_b32(Wave& w, const Inst& i) {
  Row out = {};
  u32 pattern = static_cast<u32>(i.offset);
  each_lane(w, [&](int l) {
    int from =
        pattern >> 15 & 1
            ? (l & ~3) | static_cast<int>(pattern >> 2 * (l & 3) & 3)
            : (l & 32) | (((l & 31 & static_cast<int>(pattern & 31)) | static_cast<int>(pattern >> 5 & 31)) ^
                          static_cast<int>(pattern >> 10 & 31));
    out[l] = w.exec() >> from & 1 ? w.v[i.src[0].index][from] : 0;
  });
  each_lane(w, [&](int l) { w.v[i.dst.index][l] = out[l]; });
  issue_read(w, i);
}

// In a block of 16 lanes, the rows that they fetch are a matrix of kElements x 16 elements, row after row;
// lane l gets column l.
template <u32 kBits, class Row> void transpose(const Row* rows, Row* out) {
  constexpr int kElements =
      sizeof(Row) * 8 / kBits == 21 ? 16 : sizeof(Row) * 8 / kBits; // 12 bytes travel in 16
  constexpr Row kMask = (Row{1} << kBits) - 1;
  for (int l = 0; l < kLanes; ++l) {
    int block = l & ~15, column = l & 15;
    out[l] = 0;
    for (int e = 0; e < kElements; ++e) {
      int from = block + e * (16 / kElements) + column / kElements;
      out[l] |= (rows[from] >> kBits * static_cast<u32>(column % kElements) & kMask)
                << kBits * static_cast<u32>(e);
    }
  }
}
// Whole elements: the same as loops over columns, which vectorise.
template <class Element> void transpose_elements(const u64* rows, u64* out) {
  constexpr int kElements = 8 / sizeof(Element), kBits = 8 * sizeof(Element);
  Element in[kLanes * kElements];
  std::memcpy(in, rows, sizeof(in));
  for (int block = 0; block < kLanes; block += 16) {
    u64 columns[16] = {};
    for (int e = 0; e < kElements; ++e)
      for (int k = 0; k < 16; ++k)
        columns[k] |= u64{in[block * kElements + e * 16 + k]} << kBits * e;
    std::memcpy(out + block, columns, sizeof(columns));
  }
}

template <u32 kBits, u32 kBytes> void run_transpose(Wave& w, const Inst& i) {
  using Wide = std::conditional_t<kBytes == 8, u64, unsigned __int128>;
  const LaneAddresses a(w, i, i.offset);
  Wide rows[kLanes] = {}, out[kLanes];
  bool plain = read_lds<kBytes>(w, a.at);
  each_lane(w, [&](int l) {
    const u8* from =
        plain ? w.group->lds.data() + a.at[l] : touch_lds(w, i, l, a.at[l], kBytes, Access::Read);
    if (from)
      std::memcpy(&rows[l], from, kBytes);
  });
  if constexpr (kBits == 16)
    transpose_elements<u16>(rows, out);
  else if constexpr (kBits == 8)
    transpose_elements<u8>(rows, out);
  else
    transpose<kBits>(rows, out);
  each_lane(w, [&](int l) {
    load_lane(w, i.dst.index, l, reinterpret_cast<const u8*>(&out[l]), kBytes, Fill::Whole);
  });
  count_lds(w, a.at, w.exec(), kBytes, LdsUse::Read);
  issue_read(w, i);
}

#define ATOMIC_AS(code, returning, name, suffix, T, two, ...)                                                \
  struct name##_##suffix {                                                                                   \
    using Value = T;                                                                                         \
    static constexpr bool kTwo = two;                                                                        \
    static T apply([[maybe_unused]] T old, [[maybe_unused]] T x, [[maybe_unused]] T y) {                     \
      return __VA_ARGS__;                                                                                    \
    }                                                                                                        \
  };
#define ATOMIC(code, returning, name, T, ...) ATOMIC_AS(code, returning, name, T, T, false, __VA_ARGS__)
#define ATOMIC2(code, returning, name, T, ...) ATOMIC_AS(code, returning, name, T, T, true, __VA_ARGS__)
#define ATOMIC_RETURN(code, name, T, ...) ATOMIC_AS(code, code, name, T, T, false, __VA_ARGS__)
#define ATOMIC2_RETURN(code, name, T, ...) ATOMIC_AS(code, code, name, T, T, true, __VA_ARGS__)
#define READ(...)
#define READ2(...)
#define WRITE(...)
#define WRITE2(...)
#define EXCHANGE2(...)
#define CROSS(...)
#define TRANSPOSE(...)
#include "isa/ds.inc"
#undef ATOMIC_AS
#undef ATOMIC
#undef ATOMIC2
#undef ATOMIC_RETURN
#undef ATOMIC2_RETURN
#undef READ
#undef READ2
#undef WRITE
#undef WRITE2
#undef EXCHANGE2
#undef CROSS
#undef TRANSPOSE

Type wide(u32 bytes) {
  return bytes <= 4 ? Type::B32 : bytes == 8 ? Type::B64 : bytes == 12 ? Type::B96 : Type::B128;
}
OpInfo row(const char* name, int code, Exec exec, Type dst, Type data, Type data2 = Type::None,
           Target target = Target::Both) {
  return {name, Format::Ds, Unit::Lds,  static_cast<u16>(code),  target,
          exec, dst,        Type::None, {Type::B32, data, data2}};
}

template <class T, bool kTwo> OpInfo atomic_row(const char* name, int code, Exec exec, bool returns) {
  Type t = wide(sizeof(T));
  return row(name, code, exec, returns ? t : Type::None, t, kTwo ? t : Type::None);
}

} // namespace

std::vector<OpInfo> ds_rows() {
  return {
#define READ(code, name, bytes, fill) row(#name, code, &run_read<bytes, Fill::fill>, wide(bytes), Type::None),
#define READ2(code, name, bytes, stride)                                                                     \
  row(#name, code, &run_read2<bytes, stride>, wide(2 * bytes), Type::None),
#define WRITE(code, name, bytes, shift) row(#name, code, &run_write<bytes, shift>, Type::None, wide(bytes)),
#define WRITE2(code, name, bytes, stride)                                                                    \
  row(#name, code, &run_write2<bytes, stride>, Type::None, wide(bytes), wide(bytes)),
#define ATOMIC_AS(code, returning, name, suffix, T, two, ...)                                                \
  atomic_row<T, two>(#name "_" #suffix, code, &run_atomic<name##_##suffix, false>, false),                   \
      atomic_row<T, two>(#name "_rtn_" #suffix, returning, &run_atomic<name##_##suffix, true>, true),
#define ATOMIC(code, returning, name, T, ...) ATOMIC_AS(code, returning, name, T, T, false)
#define ATOMIC2(code, returning, name, T, ...) ATOMIC_AS(code, returning, name, T, T, true)
#define ATOMIC_RETURN(code, name, T, ...)                                                                    \
  atomic_row<T, false>(#name "_" #T, code, &run_atomic<name##_##T, true>, true),
#define ATOMIC2_RETURN(code, name, T, ...)                                                                   \
  atomic_row<T, true>(#name "_" #T, code, &run_atomic<name##_##T, true>, true),
#define EXCHANGE2(code, name, bytes, stride)                                                                 \
  row(#name, code, &run_exchange2<bytes, stride>, wide(2 * bytes), wide(bytes), wide(bytes)),
#define CROSS(code, name) row(#name, code, &name, Type::B32, code == 61 ? Type::None : Type::B32),
#define TRANSPOSE(code, name, bits, bytes)                                                                   \
  row(#name, code, &run_transpose<bits, bytes>, wide(bytes), Type::None, Type::None, Target::Gfx950),
#include "isa/ds.inc"
#undef ATOMIC_AS
#undef ATOMIC
#undef ATOMIC2
#undef ATOMIC_RETURN
#undef ATOMIC2_RETURN
#undef READ
#undef READ2
#undef WRITE
#undef WRITE2
#undef EXCHANGE2
#undef CROSS
#undef TRANSPOSE
  };
}

} // namespace emu

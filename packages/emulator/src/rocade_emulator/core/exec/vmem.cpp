// Executors of vector memory: FLAT, GLOBAL, SCRATCH and MUBUF share the rows of isa/vmem.inc. How a lane's
// address is formed is the only difference; it comes from address_of (vmem_address.hpp).
#include <algorithm>
#include <atomic>
#include <mutex>

#include "control.hpp"
#include "counters.hpp"
#include "data.hpp"
#include "launch.hpp"
#include "lds.hpp"
#include "meaning.hpp"
#include "table.hpp"
#include "vmem_address.hpp"
#include "waits.hpp"

namespace emu {
namespace {

constexpr u8 kZero[16] = {};

template <Space kSpace> void issue_memory(Wave& w, const InFlight& f) {
  kSpace == Space::Flat ? issue_flat(w, f) : issue_vm(w, f);
}

template <Space kSpace, u32 kBytes, Fill kFill> void run_load(Wave& w, const Inst& i) {
  Addresses a = addresses_of<kSpace>(w, i, kBytes);
  if (has(i, Modifiers::kLds))
    return load_to_lds(w, i, a, kBytes, kFill == Fill::Signed);
  bool plain = plain_access(w, a, kBytes, false);
  for (u64 m = a.lanes; m; m &= m - 1) {
    int l = std::countr_zero(m);
    const u8* from = a.clamped >> l & 1 ? nullptr
                     : plain            ? reinterpret_cast<const u8*>(a.at[l])
                                        : touch_memory(w, i, l, a.at[l], kBytes, false);
    load_lane(w, i.dst.index, l, from ? from : kZero, kBytes, kFill);
  }
  count_memory(w, a, kBytes, plain, false);
  issue_memory<kSpace>(w, {.pc = w.pc, .first = i.dst.index, .count = i.dst.count});
}

template <Space kSpace, u32 kBytes, u32 kShift> void run_store(Wave& w, const Inst& i) {
  Addresses a = addresses_of<kSpace>(w, i, kBytes);
  bool plain = plain_access(w, a, kBytes, true);
  for (u64 m = a.lanes & ~a.clamped; m; m &= m - 1) {
    int l = std::countr_zero(m);
    u8* to = plain ? reinterpret_cast<u8*>(a.at[l]) : touch_memory(w, i, l, a.at[l], kBytes, true);
    if (to)
      store_lane(w, i.src[1].index, l, to, kBytes, kShift);
  }
  count_memory(w, a, kBytes, plain, true);
  issue_memory<kSpace>(w, {.pc = w.pc});
}

template <std::size_t kBytes> using Bits = std::conditional_t<kBytes == 8, u64, u32>;

// Where the kernel's own arithmetic goes astray, as opposed to the host's allocator.
bool misaligned(const Wave& w, u64 address, u32 bytes) {
  const Range* range = w.group->launch->memory->around(address, bytes, w.range_hint);
  return range && (address + range->shift) % bytes;
}

// Atomic on host memory, since workgroups run on several threads. Where the host put a tensor on a crooked
// address, all of its atomics go through a lock instead.
template <class T, class F> T exchange(u8* at, F&& next) {
  using B = Bits<sizeof(T)>;
  if (reinterpret_cast<u64>(at) % sizeof(T)) {
    static std::mutex lock;
    std::lock_guard hold(lock);
    T old;
    std::memcpy(&old, at, sizeof(T));
    T now = next(old);
    std::memcpy(at, &now, sizeof(T));
    return old;
  }
  std::atomic_ref<B> cell(*reinterpret_cast<B*>(at));
  B old = cell.load();
  while (!cell.compare_exchange_weak(old, std::bit_cast<B>(next(std::bit_cast<T>(old))))) {
  }
  return std::bit_cast<T>(old);
}

template <Space kSpace, class T, class F> void run_amo_with(Wave& w, const Inst& i, F&& next) {
  Addresses a = addresses_of<kSpace>(w, i, sizeof(T));
  bool returns = has(i, Modifiers::kSc0);
  for (u64 m = returns ? a.lanes & a.clamped : 0; m; m &= m - 1)
    load_lane(w, i.dst.index, std::countr_zero(m), kZero, sizeof(T), Fill::Whole);
  for (u64 m = a.lanes & ~a.clamped; m; m &= m - 1) {
    int l = std::countr_zero(m);
    u8* at = touch_memory(w, i, l, a.at[l], sizeof(T), true);
    if (!at)
      continue;
    if (misaligned(w, a.at[l], sizeof(T)))
      fail(w, i, "misaligned atomic");
    T old = exchange<T>(at, [&](T value) { return next(value, l); });
    if (returns)
      load_lane(w, i.dst.index, l, reinterpret_cast<const u8*>(&old), sizeof(T), Fill::Whole);
  }
  count_memory(w, a, sizeof(T), false, true);
  issue_memory<kSpace>(
      w, {.pc = w.pc, .first = i.dst.index, .count = static_cast<u8>(returns ? i.dst.count : 0)});
}

template <class T> T data_of(const Wave& w, int reg, int lane) {
  T x;
  store_lane(w, reg, lane, reinterpret_cast<u8*>(&x), sizeof(T), 0);
  return x;
}

template <Space kSpace, class Op> void run_amo(Wave& w, const Inst& i) {
  using T = typename Op::Value;
  run_amo_with<kSpace, T>(w, i,
                          [&](T old, int l) { return Op::apply(old, data_of<T>(w, i.src[1].index, l)); });
}
// Data register holds the new value, then the value to compare with.
template <Space kSpace, class T> void run_amo_cmp(Wave& w, const Inst& i) {
  run_amo_with<kSpace, T>(w, i, [&](T old, int l) {
    int reg = i.src[1].index;
    return old == data_of<T>(w, reg + static_cast<int>(sizeof(T) / 4), l) ? data_of<T>(w, reg, l) : old;
  });
}

namespace op {
#define AMO(code, name, T, ...)                                                                              \
  struct name {                                                                                              \
    using Value = T;                                                                                         \
    static T apply([[maybe_unused]] T old, T x) { return __VA_ARGS__; }                                      \
  };
#define AMO_CMP(...)
#define LOAD(...)
#define STORE(...)
#include "isa/vmem.inc"
#undef AMO
#undef AMO_CMP
#undef LOAD
#undef STORE
} // namespace op

Type wide(u32 bytes) {
  return bytes <= 4 ? Type::B32 : bytes == 8 ? Type::B64 : bytes == 12 ? Type::B96 : Type::B128;
}
// Segments of FLAT share opcodes: the decoder adds kSegment * segment to tell them apart in the table.
OpInfo row(const char* name, Format f, int code, Exec exec, Type dst, Type data) {
  return {name, f,   Unit::Vmem, static_cast<u16>(code), Target::Both,
          exec, dst, Type::None, {Type::B64, data}};
}

// Cache control has nothing to do in a model without caches.
void no_cache(Wave&, const Inst&) {}

template <Space kSpace> void load_dwords_to_lds(Wave& w, const Inst& i) {
  constexpr u32 kNarrow[] = {1, 1, 2, 2, 4}; // opcodes 38 to 42
  u32 code = i.info->opcode % kSegment, bytes = code == 125 ? 16 : code == 126 ? 12 : kNarrow[code - 38];
  load_to_lds(w, i, addresses_of<kSpace>(w, i, bytes), bytes, code == 39 || code == 41);
}

} // namespace

#define LOAD(code, name, bytes, fill)                                                                        \
  row(PREFIX #name, kFormat, kBase + code, &run_load<kSpace, bytes, Fill::fill>, wide(bytes), Type::None),
#define STORE(code, name, bytes, shift)                                                                      \
  row(PREFIX #name, kFormat, kBase + code, &run_store<kSpace, bytes, shift>, Type::None, wide(bytes)),
#define AMO(code, name, T, ...)                                                                              \
  row(PREFIX #name, kFormat, kBase + code, &run_amo<kSpace, op::name>, wide(sizeof(T)), wide(sizeof(T))),
#define AMO_CMP(code, name, T)                                                                               \
  row(PREFIX #name, kFormat, kBase + code, &run_amo_cmp<kSpace, T>, wide(sizeof(T)), wide(2 * sizeof(T))),

std::vector<OpInfo> mubuf_rows() {
  constexpr Format kFormat = Format::Mubuf;
  constexpr Space kSpace = Space::Buffer;
  constexpr int kBase = 0;
  std::vector<OpInfo> rows = {
#define PREFIX "buffer_"
#include "isa/vmem.inc"
#undef PREFIX
      row("buffer_wbl2", kFormat, 40, &no_cache, Type::None, Type::None),
      row("buffer_inv", kFormat, 41, &no_cache, Type::None, Type::None),
  };
  for (OpInfo& r : rows)
    if (r.opcode == 82)
      r.target = Target::Gfx950; // buffer_atomic_pk_add_bf16; gfx942 has it in FLAT and GLOBAL alone
  return rows;
}

// GLOBAL loads to LDS; the wide ones are gfx950's.
static void add_lds_loads(std::vector<OpInfo>& rows) {
  for (auto [name, code] : {std::pair{"global_load_lds_ubyte", 38},
                            {"global_load_lds_sbyte", 39},
                            {"global_load_lds_ushort", 40},
                            {"global_load_lds_sshort", 41},
                            {"global_load_lds_dword", 42},
                            {"global_load_lds_dwordx4", 125},
                            {"global_load_lds_dwordx3", 126}}) {
    rows.push_back(row(name, Format::Flat, 2 * kSegment + code, &load_dwords_to_lds<Space::Global>,
                       Type::None, Type::None));
    if (code >= 125)
      rows.back().target = Target::Gfx950;
  }
}

std::vector<OpInfo> flat_rows() {
  constexpr Format kFormat = Format::Flat;
  std::vector<OpInfo> rows;
  auto add = [&](std::initializer_list<OpInfo> more) { rows.insert(rows.end(), more); };
#define PREFIX "flat_"
  {
    constexpr Space kSpace = Space::Flat;
    constexpr int kBase = 0;
    add({
#include "isa/vmem.inc"
    });
  }
#undef PREFIX
#define PREFIX "global_"
  {
    constexpr Space kSpace = Space::Global;
    constexpr int kBase = 2 * kSegment;
    add({
#include "isa/vmem.inc"
    });
  }
#undef PREFIX
#undef AMO
#undef AMO_CMP
#define AMO(...)
#define AMO_CMP(...)
#define PREFIX "scratch_"
  {
    constexpr Space kSpace = Space::Scratch;
    constexpr int kBase = kSegment;
    add({
#include "isa/vmem.inc"
    });
  }
#undef PREFIX
  add_lds_loads(rows);
  return rows;
}

} // namespace emu

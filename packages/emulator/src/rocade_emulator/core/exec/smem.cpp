// Executors of SMEM: scalar loads (constant data by contract) and the clocks.
#include <algorithm>
#include <cstring>

#include "group.hpp"
#include "launch.hpp"
#include "modifiers.hpp"
#include "registers.hpp"
#include "table.hpp"
#include "vmem_address.hpp"
#include "waits.hpp"

namespace emu {
namespace {

u64 offset_of(const Wave& w, const Inst& i) {
  u64 offset = static_cast<u64>(i.offset);
  return has(i, Modifiers::kSoffset) ? offset + read_scalar(w, i.src[1]) : offset;
}

void issue(Wave& w, const Inst& i) {
  issue_lgkm(w, {.pc = w.pc, .scalar = true, .unordered = true, .first = i.dst.index, .count = i.dst.count});
}

void load(Wave& w, const Inst& i, u64 address, u32 dwords) {
  u32 data[16] = {};
  const Range* range = w.group->launch->memory->around(address, 1, w.range_hint);
  // The two low bits of an address do not count: those of a placed one, see memory.hpp.
  u64 dword = address - ((address + (range ? range->shift : 0)) & 3);
  if (const u8* from = touch_memory(w, i, -1, dword, 4 * dwords, false))
    std::memcpy(data, from, 4 * dwords);
  std::memcpy(&w.s[i.dst.index], data, 4 * dwords);
  (range && range->arguments ? w.group->bytes_arguments : w.group->bytes_read) += 4 * dwords;
  issue(w, i);
}

template <u32 kDwords> void run_load(Wave& w, const Inst& i) {
  load(w, i, read_scalar64(w, i.src[0]) + offset_of(w, i), kDwords);
}

// Through a buffer descriptor: dwords past num_records read as 0.
template <u32 kDwords> void run_buffer_load(Wave& w, const Inst& i) {
  const u32* s = &w.s[i.src[0].index];
  u64 base = u64{s[1] & 0xffff} << 32 | s[0], offset = offset_of(w, i);
  u32 fit = offset < s[2] ? static_cast<u32>(std::min<u64>((s[2] - offset) / 4, kDwords)) : 0;
  std::memset(&w.s[i.dst.index], 0, 4 * kDwords);
  if (fit == kDwords)
    return load(w, i, base + offset, kDwords);
  if (fit)
    if (const u8* from = touch_memory(w, i, -1, base + offset, 4 * fit, false))
      std::memcpy(&w.s[i.dst.index], from, 4 * fit);
  issue(w, i);
}

// A count of executed instructions: monotonic and the same in every run.
void run_time(Wave& w, const Inst& i) {
  write_scalar64(w, i.dst, w.steps);
  issue(w, i);
}
void run_cache(Wave&, const Inst&) {}

OpInfo row(const char* name, int code, Exec exec, Type dst, Type base) {
  return {name, Format::Smem, Unit::Smem, static_cast<u16>(code), Target::Both, exec,
          dst,  Type::None,   {base}};
}

} // namespace

std::vector<OpInfo> smem_rows() {
  return {
      row("s_load_dword", 0, &run_load<1>, Type::B32, Type::B64),
      row("s_load_dwordx2", 1, &run_load<2>, Type::B64, Type::B64),
      row("s_load_dwordx4", 2, &run_load<4>, Type::B128, Type::B64),
      row("s_load_dwordx8", 3, &run_load<8>, Type::B256, Type::B64),
      row("s_load_dwordx16", 4, &run_load<16>, Type::B512, Type::B64),
      row("s_buffer_load_dword", 8, &run_buffer_load<1>, Type::B32, Type::B128),
      row("s_buffer_load_dwordx2", 9, &run_buffer_load<2>, Type::B64, Type::B128),
      row("s_buffer_load_dwordx4", 10, &run_buffer_load<4>, Type::B128, Type::B128),
      row("s_buffer_load_dwordx8", 11, &run_buffer_load<8>, Type::B256, Type::B128),
      row("s_buffer_load_dwordx16", 12, &run_buffer_load<16>, Type::B512, Type::B128),
      row("s_dcache_inv", 32, &run_cache, Type::None, Type::None),
      row("s_dcache_wb", 33, &run_cache, Type::None, Type::None),
      row("s_memtime", 36, &run_time, Type::B64, Type::None),
      row("s_memrealtime", 37, &run_time, Type::B64, Type::None),
  };
}

} // namespace emu

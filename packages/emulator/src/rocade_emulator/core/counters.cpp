// Models of LDS bank conflicts and of cache lines; see counters.hpp.
#include "counters.hpp"

#include <algorithm>
#include <span>

#include "group.hpp"
#include "launch.hpp"

namespace emu {
namespace {

constexpr u32 kBankBytes = 4, kMaxBanks = 64;
constexpr u64 kLineBytes = 128;

// Which lanes are served together, as measured on MI300X and MI350X (docs/pages/emulator.md): in lane order,
// but for reads of 12 and 16 bytes.
constexpr u64 kWhole[] = {~u64{0}};
constexpr u64 kHalves[] = {0xffffffff, 0xffffffff00000000};
constexpr u64 kQuarters[] = {0xffff, 0xffff0000, 0xffff00000000, 0xffff000000000000};
constexpr u64 kEighths[] = {0xff,         0xff00,         0xff0000,         0xff000000,
                            0xff00000000, 0xff0000000000, 0xff000000000000, 0xff00000000000000};
constexpr u64 kMixedQuarters[] = {0x0ff0f00f, 0x0ff0f00f00000000, 0xf00f0ff0, 0xf00f0ff000000000};
constexpr u64 kMixedEighths[] = {0x00f0000f, 0x00f0000f00000000, 0x000f00f0, 0x000f00f000000000,
                                 0xf0000f00, 0xf0000f0000000000, 0x0f00f000, 0x0f00f00000000000};

struct LdsModel {
  u32 banks;
  std::span<const u64> phases;
};
// gfx950 has twice the banks for reads, but those of 12 bytes.
LdsModel model_of(Target t, u32 bytes, LdsUse use) {
  bool reads = use == LdsUse::Read;
  if (reads && t == Target::Gfx950 && bytes != 12)
    return bytes <= 4   ? LdsModel{64, kWhole}
           : bytes == 8 ? LdsModel{64, kHalves}
                        : LdsModel{64, kMixedQuarters};
  if (bytes > 8)
    return {32, reads ? std::span<const u64>(kMixedEighths) : kEighths};
  return bytes <= 4 ? LdsModel{32, kHalves} : LdsModel{32, kQuarters};
}

// How addresses fall on the banks: in slots of 2^shift bytes, which repeat with the banks.
struct Slots {
  int shift;
  u32 last; // number of slots until the banks repeat, less one: a power of two less one
  u32 each; // slots that one access covers
};

// Aligned accesses of 4, 8 or 16 bytes cover one slot of their own size; others go dword by dword.
Slots slots_of(const u32* addresses, u64 lanes, u32 bytes, u32 banks) {
  u32 low_bits = 0;
  for (u64 m = lanes; m; m &= m - 1)
    low_bits |= addresses[std::countr_zero(m)];
  if (std::has_single_bit(bytes) && bytes >= kBankBytes && !(low_bits & (bytes - 1)))
    return {std::countr_zero(bytes), banks * kBankBytes / bytes - 1, 1};
  return {std::countr_zero(kBankBytes), banks - 1, std::max(1u, bytes / kBankBytes)};
}

// Among lanes that are served together, the bank with the most distinct dwords sets the clocks; equal dwords
// are broadcast.
u32 conflict_clocks(const u32* addresses, u64 lanes, const Slots& s) {
  u32 seen[kMaxBanks][kLanes]; // what was asked of each slot; a group has at most 64 dwords
  u8 load[kMaxBanks] = {};
  u32 most = 0;
  for (u64 m = lanes; m; m &= m - 1)
    for (u32 k = 0; k < s.each; ++k) {
      u32 place = (addresses[std::countr_zero(m)] >> s.shift) + k, slot = place & s.last, j = 0;
      while (j < load[slot] && seen[slot][j] != place)
        ++j;
      if (j < load[slot])
        continue;
      seen[slot][j] = place;
      most = std::max<u32>(most, ++load[slot]);
    }
  return most;
}

// No slot twice, as in well made kernels: one clock. Else count.
u32 group_clocks(const u32* addresses, u64 lanes, const Slots& s) {
  u64 taken = 0, twice = 0;
  for (u64 m = lanes; m; m &= m - 1)
    for (u32 k = 0; k < s.each; ++k) {
      u64 mine = u64{1} << (((addresses[std::countr_zero(m)] >> s.shift) + k) & s.last);
      twice |= taken & mine;
      taken |= mine;
    }
  return twice ? conflict_clocks(addresses, lanes, s) : lanes != 0;
}

} // namespace

void count_lds(Wave& w, const u32* addresses, u64 lanes, u32 bytes, LdsUse use) {
  Group& g = *w.group;
  const LdsModel m = model_of(w.program->target, bytes, use);
  const Slots slots = slots_of(addresses, lanes, bytes, m.banks);
  for (u64 phase : m.phases) {
    u32 clocks = group_clocks(addresses, lanes & phase, slots);
    g.lds_cycles += clocks;
    g.lds_ideal_cycles += clocks ? 1 : 0;
  }
}

// Distinct cache lines. Lanes usually go up in memory, so that equal lines are neighbours; else they are
// sorted.
u64 distinct_lines(const u64* addresses, u64 lanes, u32 bytes) {
  u64 lines[kLanes * 2], n = 0;
  bool rising = true;
  auto add = [&](u64 line) {
    if (n && line == lines[n - 1])
      return;
    rising &= n == 0 || line > lines[n - 1];
    lines[n++] = line;
  };
  for (u64 m = lanes; m; m &= m - 1) {
    u64 a = addresses[std::countr_zero(m)];
    add(a / kLineBytes);
    add((a + bytes - 1) / kLineBytes);
  }
  if (rising)
    return n;
  std::sort(lines, lines + n);
  return static_cast<u64>(std::unique(lines, lines + n) - lines);
}

void count_global(Wave& w, const u64* addresses, u64 lanes, u32 bytes, bool write) {
  Group& g = *w.group;
  u64 moved = u64{bytes} * static_cast<u64>(std::popcount(lanes));
  u64 lines = distinct_lines(addresses, lanes, bytes);
  g.cache_lines += lines;
  g.cache_lines_ideal += std::min(lines, (moved + kLineBytes - 1) / kLineBytes); // lanes may share bytes
  (write ? g.bytes_written : g.bytes_read) += moved;
}

void count_scratch(Wave& w, const u32* offsets, u64 lanes, u32 bytes, bool write) {
  u64 placed[kLanes];
  for (u32 k = 0; k < bytes; k += 4) {
    for (u64 m = lanes; m; m &= m - 1) {
      u32 l = static_cast<u32>(std::countr_zero(m)), offset = offsets[l] + k;
      placed[l] = u64{offset / 4} * kLanes * 4 + l * 4 + offset % 4;
    }
    count_global(w, placed, lanes, std::min(bytes, 4u), write);
  }
}

void Counters::add(const Counters& o) {
  instructions += o.instructions;
  for (int u = 0; u < 10; ++u)
    by_unit[u] += o.by_unit[u];
  mfma_cycles += o.mfma_cycles;
  valu_cycles += o.valu_cycles;
  trans_cycles += o.trans_cycles;
  salu_cycles += o.salu_cycles;
  lds_cycles += o.lds_cycles;
  lds_ideal_cycles += o.lds_ideal_cycles;
  bytes_read += o.bytes_read;
  bytes_written += o.bytes_written;
  bytes_arguments += o.bytes_arguments;
  cache_lines += o.cache_lines;
  cache_lines_ideal += o.cache_lines_ideal;
  waves += o.waves;
  groups += o.groups;
}

} // namespace emu

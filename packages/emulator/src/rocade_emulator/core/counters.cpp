// Models of LDS bank conflicts and of cache lines; see counters.hpp.
#include "counters.hpp"

#include <algorithm>

#include "group.hpp"
#include "launch.hpp"

namespace emu {
namespace {

constexpr u32 kBankBytes = 4, kMaxBanks = 64;
constexpr u64 kLineBytes = 64;

struct LdsModel {
  u32 banks;
  u32 wide_bytes;  // bytes a clock for 16-byte accesses
};
LdsModel model_of(Target t) { return t == Target::Gfx950 ? LdsModel{64, 256} : LdsModel{32, 128}; }

// Lanes are served in groups that together move one clock's worth of bytes. In a group, the bank with the most
// distinct dwords sets the clocks; equal dwords are broadcast.
u32 group_clocks(const u32* addresses, u64 lanes, int first, int count, u32 bytes, u32 banks) {
  u32 seen[kMaxBanks][kLanes];  // distinct dwords of each bank; a group has at most 64 dwords
  u8 load[kMaxBanks] = {};
  u32 most = 0;
  for (int l = first; l < first + count; ++l) {
    if (!(lanes >> l & 1)) continue;
    for (u32 b = 0; b < std::max(bytes, kBankBytes); b += kBankBytes) {
      u32 word = (addresses[l] + b) / kBankBytes, bank = word % banks, k = 0;
      while (k < load[bank] && seen[bank][k] != word) ++k;
      if (k < load[bank]) continue;
      seen[bank][k] = word;
      most = std::max<u32>(most, ++load[bank]);
    }
  }
  return most;
}

}  // namespace

void count_lds(Wave& w, const u32* addresses, u32 bytes) {
  Group& g = *w.group;
  LdsModel m = model_of(w.program->target);
  u32 per_clock = bytes == 16 ? m.wide_bytes : 128;
  int lanes_a_clock = static_cast<int>(std::max(1u, per_clock / std::max(bytes, kBankBytes)));
  lanes_a_clock = std::min(lanes_a_clock, kLanes);
  u32 banks = bytes == 16 ? m.banks : 32;
  for (int l = 0; l < kLanes; l += lanes_a_clock) {
    u32 clocks = group_clocks(addresses, w.exec(), l, lanes_a_clock, bytes, banks);
    g.lds_cycles += clocks;
    g.lds_ideal_cycles += clocks ? 1 : 0;
  }
}

void count_global(Wave& w, const u64* addresses, u64 lanes, u32 bytes, bool write) {
  Group& g = *w.group;
  u64 lines[kLanes * 2];
  u32 n = 0;
  for (u64 m = lanes; m; m &= m - 1) {
    u64 a = addresses[std::countr_zero(m)];
    lines[n++] = a / kLineBytes;
    if ((a + bytes - 1) / kLineBytes != a / kLineBytes) lines[n++] = (a + bytes - 1) / kLineBytes;
  }
  std::sort(lines, lines + n);
  u64 moved = u64{bytes} * static_cast<u64>(std::popcount(lanes));
  g.cache_lines += static_cast<u64>(std::unique(lines, lines + n) - lines);
  g.cache_lines_ideal += (moved + kLineBytes - 1) / kLineBytes;
  (write ? g.bytes_written : g.bytes_read) += moved;
}

void Counters::add(const Counters& o) {
  instructions += o.instructions;
  for (int u = 0; u < 10; ++u) by_unit[u] += o.by_unit[u];
  mfma_cycles += o.mfma_cycles;
  valu_cycles += o.valu_cycles;
  trans_cycles += o.trans_cycles;
  salu_cycles += o.salu_cycles;
  lds_cycles += o.lds_cycles;
  lds_ideal_cycles += o.lds_ideal_cycles;
  bytes_read += o.bytes_read;
  bytes_written += o.bytes_written;
  cache_lines += o.cache_lines;
  cache_lines_ideal += o.cache_lines_ideal;
  waves += o.waves;
  groups += o.groups;
}

}  // namespace emu

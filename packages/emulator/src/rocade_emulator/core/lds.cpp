// Shadow checks of LDS; see lds.hpp and group.hpp.
#include "lds.hpp"

#include <algorithm>
#include <cstring>

#include "launch.hpp"

namespace emu {
namespace {

// Marks one cell and says whether another wave's access in the same epoch conflicts with it.
bool conflicts(LdsCell& c, u32 epoch, u8 wave, u8 bytes, bool write) {
  bool bad = c.write_epoch == epoch && c.writer != wave && (c.write_bytes & bytes);
  u64 self = u64{1} << wave;
  if (write) {
    bad |= c.read_epoch == epoch && (c.readers & ~self) && (c.read_bytes & bytes);
    if (c.write_epoch != epoch || c.writer != wave) c.write_bytes = 0;
    c.write_epoch = epoch;
    c.writer = wave;
    c.write_bytes |= bytes;
    c.defined |= bytes;
  } else {
    if (c.read_epoch != epoch) c.readers = 0, c.read_bytes = 0;
    c.read_epoch = epoch;
    c.readers |= self;
    c.read_bytes |= bytes;
  }
  return bad;
}

}  // namespace

u8* touch_lds(Wave& w, const Inst& i, int lane, u32 address, u32 bytes, bool write) {
  Group& g = *w.group;
  Launch& launch = *g.launch;
  if (u64{address} + bytes > g.lds.size()) {
    if (launch.checks(kCheckBounds))
      launch.report(w, i, kCheckBounds, Severity::Error, lane, address, write ? "LDS write past the end" : "LDS read past the end");
    return nullptr;
  }
  if (launch.checks(kCheckAlignment) && address % std::min(bytes, 4u))
    launch.report(w, i, kCheckAlignment, Severity::Error, lane, address, "misaligned LDS access");
  bool race = false, undefined = false;
  for (u32 at = address & ~3u; at < address + bytes; at += 4) {
    LdsCell& c = g.shadow[at / 4];
    u32 first = at < address ? address - at : 0, last = std::min(address + bytes - at, 4u);
    u8 mask = static_cast<u8>((1u << last) - (1u << first));
    undefined |= !write && (c.defined & mask) != mask;
    race |= conflicts(c, g.epoch, w.number, mask, write);
  }
  if (race && launch.checks(kCheckRaces))
    launch.report(w, i, kCheckRaces, Severity::Error, lane, address, write ? "LDS write races with another wave" : "LDS read races with another wave's write");
  if (undefined && launch.checks(kCheckUninitialised))
    launch.report(w, i, kCheckUninitialised, Severity::Error, lane, address, "read of LDS that was never written");
  return g.lds.data() + address;
}

u32 stage_lds(Wave& w, StagedLds&& staged) {
  auto& ring = w.group->staged[w.number];
  u32 slot = w.vm.tail % 64;
  if (ring.size() < 64) ring.resize(64);
  ring[slot] = std::move(staged);
  return slot;
}

void land_staged(Wave& w, const InFlight& f) {
  StagedLds& s = w.group->staged[w.number][f.lds_slot];
  const Inst& i = w.program->insts[f.pc];
  for (int l = 0; l < kLanes; ++l) {
    if (!(s.lanes >> l & 1)) continue;
    u32 lane_bytes = s.bytes;
    if (u8* to = touch_lds(w, i, l, s.base + static_cast<u32>(l) * lane_bytes, lane_bytes, true))
      std::memcpy(to, s.data + l * 16, lane_bytes);
  }
}

}  // namespace emu

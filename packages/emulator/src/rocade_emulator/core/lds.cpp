// Shadow checks of LDS; see lds.hpp and group.hpp.
#include "lds.hpp"

#include <algorithm>
#include <cstring>

#include "launch.hpp"

namespace emu {
namespace {

// One lane's access to one cell.
struct Touch {
  u32 epoch;
  u16 self;   // the wave's bit
  u8 bytes;   // of the cell
  Access access;
  u8 wave;
  u32 ticket;  // place in the wave's lgkm queue; behind it for data that has landed
};

bool conflicts(const LdsCell& c, const Touch& t) {
  bool written = c.write_epoch == t.epoch && (c.write_bytes & t.bytes);
  bool read = c.read_epoch == t.epoch && (c.read_bytes & t.bytes) && (c.readers & ~t.self);
  bool by_others = written && (c.writers & ~t.self);
  switch (t.access) {
    case Access::Read: return c.atomic ? by_others : written && !(c.writers & t.self);
    case Access::Write: return by_others || read;
    case Access::Atomic: return (by_others && !c.atomic) || read;
  }
  return false;
}

// Whether an operation of a wave is one that no s_waitcnt has covered.
bool in_flight(const Group& g, u8 wave, u32 ticket) {
  const Wave& w = *g.waves[wave];
  return w.state != WaveState::Done && ticket - w.lgkm.head < w.lgkm.size();
}

// Another wave's access from before the last barrier that may still be under way: it did not wait for it.
bool unfinished(const Group& g, const LdsCell& c, const Touch& t) {
  bool written = c.write_epoch && c.write_epoch != t.epoch && (c.write_bytes & t.bytes) && c.last_writer != t.wave;
  if (written && !(c.atomic && t.access == Access::Atomic) && in_flight(g, c.last_writer, c.write_ticket)) return true;
  bool read = c.read_epoch && c.read_epoch != t.epoch && (c.read_bytes & t.bytes) && c.last_reader != t.wave;
  return read && t.access != Access::Read && in_flight(g, c.last_reader, c.read_ticket);
}

// `joins`: the write leaves what other waves wrote as it is, so that they all count as its writers.
void record(LdsCell& c, const Touch& t, bool joins) {
  if (t.access == Access::Read) {
    if (c.read_epoch != t.epoch) c.readers = 0, c.read_bytes = 0;
    c.read_epoch = t.epoch;
    c.readers |= t.self;
    c.read_bytes |= t.bytes;
    c.last_reader = t.wave;
    c.read_ticket = t.ticket;
    return;
  }
  bool same = c.write_epoch == t.epoch && (joins || c.writers == t.self);
  if (!same) c.writers = 0, c.write_bytes = 0;
  c.write_epoch = t.epoch;
  c.writers |= t.self;
  c.write_bytes |= t.bytes;
  c.defined |= t.bytes;
  c.atomic = t.access == Access::Atomic;
  c.last_writer = t.wave;
  c.write_ticket = t.ticket;
}

const char* race_text(Access access) {
  return access == Access::Read ? "LDS read races with another wave's write" : "LDS write races with another wave";
}

// Calls f(cell, touch) for every cell that the access reaches.
template <class F>
void each_cell(Wave& w, const Inst& i, u32 address, u32 bytes, Access access, F&& f) {
  Group& g = *w.group;
  // DS instructions are counted after their accesses; a direct-to-LDS load lands when its wait is over.
  u32 ticket = i.info->unit == Unit::Lds ? w.lgkm.tail : w.lgkm.head - 1;
  for (u32 at = address & ~3u; at < address + bytes; at += 4) {
    u32 first = at < address ? address - at : 0, last = std::min(address + bytes - at, 4u);
    u8 mask = static_cast<u8>((1u << last) - (1u << first));
    f(g.shadow[at / 4], Touch{g.epoch, static_cast<u16>(1u << w.number), mask, access, w.number, ticket});
  }
}

// A read of whole cells, by far the most frequent access: what each_cell with conflicts, unfinished and record does.
struct Seen {
  bool race = false, undefined = false, early = false;
};
Seen read_whole_cells(const Wave& w, u32 address, u32 bytes) {
  Group& g = *w.group;
  const u32 epoch = g.epoch;
  const u16 self = static_cast<u16>(1u << w.number);
  Seen seen;
  for (LdsCell *c = &g.shadow[address / 4], *end = c + bytes / 4; c != end; ++c) {
    seen.undefined |= c->defined != 15;
    if (c->write_epoch == epoch)
      seen.race |= c->atomic ? c->writers & ~self : !(c->writers & self);
    else if (c->write_epoch && c->last_writer != w.number)
      seen.early |= in_flight(g, c->last_writer, c->write_ticket);
    c->readers = static_cast<u16>(c->read_epoch == epoch ? c->readers | self : self);
    c->read_bytes = 15;
    c->read_epoch = epoch;
    c->last_reader = w.number;
    c->read_ticket = w.lgkm.tail;
  }
  return seen;
}

}  // namespace

u8* touch_lds(Wave& w, const Inst& i, int lane, u32 address, u32 bytes, Access access, const u8* data) {
  Group& g = *w.group;
  Launch& launch = *g.launch;
  if (u64{address} + bytes > g.lds.size()) {
    launch.report(w, i, kCheckBounds, Severity::Error, lane, address,
                  access == Access::Read ? "LDS read past the end" : "LDS write past the end");
    return nullptr;
  }
  u8* at = g.lds.data() + address;
  if (address % std::min(bytes, 4u))
    launch.report(w, i, kCheckAlignment, Severity::Error, lane, address, "misaligned LDS access");
  Seen seen;
  auto& [race, undefined, early] = seen;
  bool joins = false;
  if (access == Access::Read && address % 4 == 0 && bytes % 4 == 0 && i.info->unit == Unit::Lds) {
    seen = read_whole_cells(w, address, bytes);
  } else {
    each_cell(w, i, address, bytes, access, [&](const LdsCell& c, const Touch& t) {
      undefined |= (c.defined & t.bytes) != t.bytes;
      race |= conflicts(c, t);
      early |= unfinished(g, c, t);
    });
    joins = access == Access::Atomic || (race && !undefined && data && std::memcmp(at, data, bytes) == 0);
    each_cell(w, i, address, bytes, access, [&](LdsCell& c, const Touch& t) { record(c, t, joins); });
  }
  if (race && !(joins && access == Access::Write))
    launch.report(w, i, kCheckRaces, Severity::Error, lane, address, race_text(access));
  if (early)
    launch.report(w, i, kCheckWaits, Severity::Error, lane, address,
                  "LDS that another wave accessed before a barrier, without s_waitcnt lgkmcnt before it");
  if (undefined && access != Access::Write)
    launch.report(w, i, kCheckUninitialised, Severity::Error, lane, address, "read of LDS that was never written");
  return at;
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
    const u8* data = s.data + l * 16;
    if (u8* to = touch_lds(w, i, l, s.base + static_cast<u32>(l) * lane_bytes, lane_bytes, Access::Write, data))
      std::memcpy(to, data, lane_bytes);
  }
}

}  // namespace emu

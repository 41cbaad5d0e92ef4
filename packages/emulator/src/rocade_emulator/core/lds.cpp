// Checks of LDS accesses lane by lane, in full; see lds.hpp and lds_tags.hpp.
#include "lds.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "launch.hpp"
#include "modifiers.hpp"
#include "program.hpp"

namespace emu {
namespace {

// One lane's access to one cell.
struct Touch {
  u16 self; // the wave's bit
  u8 bytes; // of the cell
  Access access;
  u8 wave;
};

bool of_this_epoch(const Group& g, const LdsTag& t) { return t.sequence >= g.epoch_begin; }

bool conflicts(const Group& g, const LdsTag& written, const LdsTag& read, const Touch& t) {
  bool wrote = of_this_epoch(g, written) && (written.bytes & t.bytes);
  bool others_read = of_this_epoch(g, read) && (read.bytes & t.bytes) && (read.waves & ~t.self);
  bool others_wrote = wrote && (written.waves & ~t.self);
  switch (t.access) {
  case Access::Read:
    return written.atomic ? others_wrote : wrote && !(written.waves & t.self);
  case Access::Write:
    return others_wrote || others_read;
  case Access::Atomic:
    return (others_wrote && !written.atomic) || others_read;
  }
  return false;
}

// Whether an operation is one that no s_waitcnt of its wave has covered.
bool in_flight(const Group& g, const LdsTag& t) {
  const Wave& w = *g.waves[t.last];
  return !t.landed && w.state != WaveState::Done && w.lgkm.size() && t.sequence >= w.lgkm.front().sequence;
}

// Another wave's access from before the last barrier that may still be under way: it did not wait for it.
bool unfinished(const Group& g, const LdsTag& written, const LdsTag& read, const Touch& t) {
  auto earlier = [&](const LdsTag& tag) {
    return tag.sequence && !of_this_epoch(g, tag) && (tag.bytes & t.bytes) && tag.last != t.wave &&
           in_flight(g, tag);
  };
  if (earlier(written) && !(written.atomic && t.access == Access::Atomic))
    return true;
  return t.access != Access::Read && earlier(read);
}

void record_read(const Group& g, LdsTag& read, const Touch& t) {
  if (!of_this_epoch(g, read))
    read.waves = 0, read.bytes = 0;
  read.sequence = g.sequence;
  read.waves |= t.self;
  read.bytes |= t.bytes;
  read.last = t.wave;
}

// `joins`: the write leaves what other waves wrote as it is, so that they all count as its writers.
void record_write(const Group& g, LdsTag& written, const Touch& t, bool joins, bool landed) {
  bool same = of_this_epoch(g, written) && (joins || written.waves == t.self);
  if (!same)
    written.waves = 0, written.bytes = 0;
  written.sequence = g.sequence;
  written.waves |= t.self;
  written.bytes |= t.bytes;
  written.defined |= t.bytes;
  written.atomic = t.access == Access::Atomic;
  written.landed = landed;
  written.last = t.wave;
}

const char* race_text(Access access) {
  return access == Access::Read ? "LDS read races with another wave's write"
                                : "LDS write races with another wave";
}

// Calls f(cell, touch) for every cell that the access reaches.
template <class F> void each_cell(const Wave& w, u32 address, u32 bytes, Access access, F&& f) {
  for (u32 at = address & ~3u; at < address + bytes; at += 4) {
    u32 first = at < address ? address - at : 0, last = std::min(address + bytes - at, 4u);
    u8 mask = static_cast<u8>((1u << last) - (1u << first));
    f(at / 4, Touch{static_cast<u16>(1u << w.number), mask, access, w.number});
  }
}

struct Seen {
  bool race = false, undefined = false, early = false;
};
Seen look(const Wave& w, u32 address, u32 bytes, Access access) {
  const Group& g = *w.group;
  Seen seen;
  each_cell(w, address, bytes, access, [&](u32 cell, const Touch& t) {
    LdsTag written = LdsTag::of(g.lds_writes[cell]), read = LdsTag::of(g.lds_reads[cell]);
    seen.undefined |= (written.defined & t.bytes) != t.bytes;
    seen.race |= conflicts(g, written, read, t);
    seen.early |= unfinished(g, written, read, t);
  });
  return seen;
}

void record(const Wave& w, u32 address, u32 bytes, Access access, bool joins, bool landed) {
  Group& g = *w.group;
  each_cell(w, address, bytes, access, [&](u32 cell, const Touch& t) {
    i64& word = (access == Access::Read ? g.lds_reads : g.lds_writes)[cell];
    LdsTag tag = LdsTag::of(word);
    if (access == Access::Read)
      record_read(g, tag, t);
    else
      record_write(g, tag, t, joins, landed);
    word = tag.word();
  });
}

// Calls f(load, what it writes, whether it is the wave's own) for direct-to-LDS loads in flight until it says
// yes. Those of other waves count when a barrier came after them; before it, what they write is a race.
template <class F> bool any_staged(const Wave& w, F&& f) {
  const Group& g = *w.group;
  for (const auto& other : g.waves) {
    const auto& ring = g.staged[other->number];
    const bool own = other.get() == &w;
    for (u32 k = ring.empty() ? other->vm.tail : other->vm.head; k != other->vm.tail; ++k) {
      const InFlight& load = other->vm.items[k % 64];
      if (load.to_lds && (own || load.sequence < g.epoch_begin) && f(load, ring[load.lds_slot], own))
        return true;
    }
  }
  return false;
}

// Whether a load writes one of the bytes [first, end).
bool reaches(const StagedLds& s, u64 first, u64 end) {
  const u64 base = s.base, all = u64{s.bytes} * kLanes;
  if (end <= base || first >= base + all)
    return false;
  const u64 low = (std::max(first, base) - base) / s.bytes;
  const u64 high = (std::min(end, base + all) - 1 - base) / s.bytes;
  return s.lanes >> low << (kLanes - 1 - (high - low));
}

void report_staged(Wave& w, const Inst& i, int lane, u32 address, u32 bytes) {
  any_staged(w, [&](const InFlight& load, const StagedLds& s, bool own) {
    if (!reaches(s, address, u64{address} + bytes))
      return false;
    char text[160];
    std::snprintf(text, sizeof(text),
                  "LDS that %s load of pc 0x%x writes, which is in flight: missing s_waitcnt vmcnt%s",
                  own ? "the" : "another wave's", w.program->insts[load.pc].pc,
                  own ? "" : " before the barrier");
    w.group->launch->report(w, i, kCheckWaits, Severity::Error, lane, address, text);
    return true;
  });
}

} // namespace

bool near_staged(const Wave& w, const u32* addresses, u64 lanes, u32 bytes) {
  const Group& g = *w.group;
  if (std::ranges::all_of(g.staged, [](const auto& ring) { return ring.empty(); }))
    return false;
  u64 low = ~u64{0}, high = 0;
  for (u64 m = lanes; m; m &= m - 1) {
    const u64 at = addresses[std::countr_zero(m)];
    low = std::min(low, at);
    high = std::max(high, at);
  }
  return any_staged(w,
                    [&](const InFlight&, const StagedLds& s, bool) { return reaches(s, low, high + bytes); });
}

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
  if (!has(i, Modifiers::kLds)) // loads to LDS land in order
    report_staged(w, i, lane, address, bytes);
  auto [race, undefined, early] = look(w, address, bytes, access);
  bool joins = access == Access::Atomic || (race && !undefined && data && std::memcmp(at, data, bytes) == 0);
  record(w, address, bytes, access, joins, has(i, Modifiers::kLds));
  if (race && !(joins && access == Access::Write))
    launch.report(w, i, kCheckRaces, Severity::Error, lane, address, race_text(access));
  if (early)
    launch.report(w, i, kCheckWaits, Severity::Error, lane, address,
                  "LDS that another wave accessed before a barrier, without s_waitcnt lgkmcnt before it");
  if (undefined && access != Access::Write)
    launch.report(w, i, kCheckUninitialised, Severity::Error, lane, address,
                  "read of LDS that was never written");
  return at;
}

u32 first_unsafe(const Group& g) {
  u32 first = g.epoch_begin;
  for (const auto& w : g.waves)
    if (w->state != WaveState::Done && w->lgkm.size())
      first = std::min(first, w->lgkm.front().sequence);
  return first;
}

u32 next_sequence(Group& g) {
  if (g.sequence == LdsTag::kMaxSequence)
    throw std::runtime_error("more than 2^31 LDS operations in one workgroup");
  return g.sequence++;
}

void begin_epoch(Group& g) {
  next_sequence(g); // data that landed just before has the number of an operation to come
  g.epoch_begin = g.sequence;
  g.safe = first_unsafe(g);
}

StagedLds& staged_lds(Wave& w, u32& slot) {
  auto& ring = w.group->staged[w.number];
  slot = w.vm.tail % 64;
  if (ring.size() < 64)
    ring.resize(64);
  return ring[slot];
}

namespace {

template <u32 kBytes> bool land(const Wave& w, const StagedLds& s, const u32* addresses) {
  if (!write_lds<kBytes>(w, addresses, s.lanes, true))
    return false;
  for (u64 m = s.lanes; m; m &= m - 1) {
    int l = std::countr_zero(m);
    std::memcpy(w.group->lds.data() + addresses[l], s.data + static_cast<u32>(l) * kBytes, kBytes);
  }
  return true;
}

} // namespace

void land_staged(Wave& w, const InFlight& f) {
  const StagedLds& s = w.group->staged[w.number][f.lds_slot];
  u32 addresses[kLanes];
  for (u32 l = 0; l < kLanes; ++l)
    addresses[l] = s.base + l * s.bytes;
  if (s.bytes == 4 ? land<4>(w, s, addresses) : s.bytes == 16 && land<16>(w, s, addresses))
    return;
  const Inst& i = w.program->insts[f.pc];
  for (u64 m = s.lanes; m; m &= m - 1) {
    int l = std::countr_zero(m);
    const u8* data = s.data + static_cast<u32>(l) * s.bytes;
    if (u8* to = touch_lds(w, i, l, addresses[l], s.bytes, Access::Write, data))
      std::memcpy(to, data, s.bytes);
  }
}

} // namespace emu

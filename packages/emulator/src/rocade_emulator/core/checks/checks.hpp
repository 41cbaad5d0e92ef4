// What is looked at around every instruction, from its declared uses: registers still in flight, registers
// never written, and wait states that the hardware does not insert. Meanings stay free of all this.
#pragma once

#include "launch.hpp"
#include "wave.hpp"

namespace emu {

// Use by use, with reports.
void check_uses(Wave& w, const Inst& i, Launch& launch);
void mark_uses(Wave& w, const Inst& i);
// Lanes in which each register of the result is undefined, by the marks of the sources.
struct UndefinedLanes {
  u64 of[2] = {};
};
UndefinedLanes undefined_results(const Wave& w, const Inst& i);
void unmark(Wave& w, const Inst& i, const UndefinedLanes& lanes);

// Returns whether a source may be undefined.
inline bool check_before(Wave& w, const Inst& i, Launch& launch) {
  const Touched& t = i.touched;
  bool in_flight = t.reads.meets(w.pending) || t.writes.meets(w.pending) || t.s_reads.meets(w.s_pending) ||
                   t.s_writes.meets(w.s_pending);
  bool unwritten = !t.reads.within(w.whole) || !t.s_reads.within(w.s_written);
  if (in_flight || unwritten) [[unlikely]]
    check_uses(w, i, launch);
  return unwritten;
}

inline void mark_after(Wave& w, const Inst& i, bool unwritten) {
  UndefinedLanes undefined;
  bool follow = unwritten && i.undefined != Undefined::Reported;
  if (follow) [[unlikely]]
    undefined = undefined_results(w, i); // the marks are still those from before it
  w.s_written.add(i.touched.s_writes);
  if (!i.touched.writes.within(w.whole)) [[unlikely]]
    mark_uses(w, i);
  if (follow) [[unlikely]]
    unmark(w, i, undefined);
}

} // namespace emu

// What is looked at around every instruction, from its declared uses: registers still in flight, registers
// never written, and wait states that the hardware does not insert. Meanings stay free of all this.
#pragma once

#include "launch.hpp"
#include "wave.hpp"

namespace emu {

// Use by use, with reports.
void check_uses(Wave& w, const Inst& i, Launch& launch);
void mark_uses(Wave& w, const Inst& i);
// Of an instruction that is `upward`: lanes whose result has an undefined high dword. Before it runs, and
// after.
u64 undefined_high(const Wave& w, const Inst& i);
void undefine_high(Wave& w, const Inst& i, u64 lanes);

inline void check_before(Wave& w, const Inst& i, Launch& launch) {
  const Touched& t = i.touched;
  bool in_flight = t.reads.meets(w.pending) || t.writes.meets(w.pending) || t.s_reads.meets(w.s_pending) ||
                   t.s_writes.meets(w.s_pending);
  bool unwritten = !t.reads.within(w.whole) || !t.s_reads.within(w.s_written);
  if (in_flight || unwritten) [[unlikely]]
    check_uses(w, i, launch);
}

inline void mark_after(Wave& w, const Inst& i) {
  const u64 undefined = i.upward ? undefined_high(w, i) : 0; // the marks are still those from before it
  w.s_written.add(i.touched.s_writes);
  if (!i.touched.writes.within(w.whole)) [[unlikely]]
    mark_uses(w, i);
  if (undefined) [[unlikely]]
    undefine_high(w, i, undefined);
}

} // namespace emu

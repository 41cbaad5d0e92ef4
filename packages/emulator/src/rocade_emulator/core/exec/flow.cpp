// Executors of SOPP: branches, barriers, waits, and instructions that a functional model has nothing to do
// for.
#include "control.hpp"
#include "group.hpp"
#include "launch.hpp"
#include "lds.hpp"
#include "table.hpp"
#include "waits.hpp"

namespace emu {
namespace {

void branch_if(Wave& w, const Inst& i, bool taken) {
  if (taken)
    jump_to_offset(w, i, i.offset);
}

void release_barrier(Group& g) {
  if (g.at_barrier == 0 || g.at_barrier < g.live)
    return;
  begin_epoch(g);
  g.at_barrier = 0;
  for (auto& wave : g.waves)
    if (wave->state == WaveState::AtBarrier)
      wave->state = WaveState::Running;
}

void s_nop(Wave&, const Inst&) {}
void s_endpgm(Wave& w, const Inst&) {
  wait_vm(w, 0); // the hardware lets everything finish
  wait_lgkm(w, 0);
  w.state = WaveState::Done;
  --w.group->live;
  release_barrier(*w.group);
}
void s_branch(Wave& w, const Inst& i) { branch_if(w, i, true); }
void s_cbranch_scc0(Wave& w, const Inst& i) { branch_if(w, i, !w.scc); }
void s_cbranch_scc1(Wave& w, const Inst& i) { branch_if(w, i, w.scc); }
void s_cbranch_vccz(Wave& w, const Inst& i) { branch_if(w, i, w.vcc() == 0); }
void s_cbranch_vccnz(Wave& w, const Inst& i) { branch_if(w, i, w.vcc() != 0); }
void s_cbranch_execz(Wave& w, const Inst& i) { branch_if(w, i, w.exec() == 0); }
void s_cbranch_execnz(Wave& w, const Inst& i) { branch_if(w, i, w.exec() != 0); }
void s_barrier(Wave& w, const Inst&) {
  w.state = WaveState::AtBarrier;
  ++w.group->at_barrier;
  release_barrier(*w.group);
}
// simm16: vmcnt in [3:0] and [15:14], expcnt in [6:4], lgkmcnt in [11:8].
void s_waitcnt(Wave& w, const Inst& i) {
  u32 vm = (i.simm & 15) | (i.simm >> 14 & 3) << 4, lgkm = i.simm >> 8 & 15;
  if (vm < 63)
    wait_vm(w, vm);
  if (lgkm < 15)
    wait_lgkm(w, lgkm);
}
void s_sleep(Wave& w, const Inst&) { w.yields = true; }
void s_setprio(Wave& w, const Inst& i) { w.priority = static_cast<u8>(i.simm & 3); }
// They need a trap handler or a host that listens.
void s_sethalt(Wave& w, const Inst& i) { fail(w, i, "the wave halts"); }
void s_sendmsg(Wave& w, const Inst& i) { fail(w, i, "messages are not modelled:"); }
void s_sendmsghalt(Wave& w, const Inst& i) { fail(w, i, "messages are not modelled:"); }
void s_trap(Wave& w, const Inst& i) { fail(w, i, "the kernel traps"); }
void note(Wave&, const Inst&) {}

OpInfo row(const char* name, int code, Unit unit, Exec exec) {
  OpInfo info{name,       Format::Sopp, unit, static_cast<u16>(code), Target::Both, exec,
              Type::None, Type::None,   {}};
  return info;
}

} // namespace

std::vector<OpInfo> sopp_rows() {
  return {
#define FLOW(code, name, unit) row(#name, code, Unit::unit, &name),
#define NOTE(code, name, unit) row(#name, code, Unit::unit, &note),
#include "isa/sopp.inc"
#undef FLOW
#undef NOTE
  };
}

} // namespace emu

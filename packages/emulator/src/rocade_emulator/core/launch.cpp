// Running a launch: workgroups in residence on each host thread, waves taking turns by schedule, errors that
// stop it.
#include "launch.hpp"

#include <cstdarg>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "checks/checks.hpp"
#include "control.hpp"
#include "fp8.hpp"
#include "group.hpp"
#include "run.hpp"
#include "text.hpp"

namespace emu {
namespace {

struct Stop : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace

void fail(const Wave& w, const Inst& i, const std::string& what) {
  char where[160];
  const u32* g = w.group->id;
  std::snprintf(where, sizeof(where), " at pc 0x%x (%s), workgroup (%u, %u, %u), wave %u", i.pc,
                text_of(i).c_str(), g[0], g[1], g[2], w.number);
  throw Stop(what + where);
}

u64 code_address(const Wave& w, u32 offset) { return w.program->base + offset; }

void jump_to_offset(Wave& w, const Inst& i, i64 offset) {
  i32 index = offset < 0 ? -1 : w.program->index_at(static_cast<u64>(offset));
  if (index < 0)
    fail(w, i, "jump to no instruction, byte offset " + std::to_string(offset));
  w.pc = static_cast<u32>(index);
  w.jumped = true;
}
void jump_to_address(Wave& w, const Inst& i, u64 address) {
  jump_to_offset(w, i, static_cast<i64>(address - w.program->base));
}

void Launch::report(const Wave& w, const Inst& i, Check check, Severity severity, i32 lane, u64 address,
                    const char* text) {
  if (!checks(check))
    return;
  std::lock_guard hold(lock);
  for (Report& r : reports)
    if (r.check == check && r.pc == i.pc && r.severity == severity && std::strcmp(r.text, text) == 0) {
      ++r.count;
      return;
    }
  if (reports.size() >= options.max_reports) {
    ++dropped_reports;
    return;
  }
  Report r{check,   severity, i.pc, {w.group->id[0], w.group->id[1], w.group->id[2]}, w.number, lane,
           address, 1,        {}};
  std::snprintf(r.text, sizeof(r.text), "%s", text);
  reports.push_back(r);
}

namespace {

[[noreturn]] void fail_next(const Wave& w, const Inst& i) {
  auto bad = w.program->undecoded.find(i.pc + i.size);
  fail(w, i,
       bad == w.program->undecoded.end() ? "ran past the end of the text after"
                                         : "cannot execute what follows (" + bad->second + ") after");
}

} // namespace

// One instruction of one wave.
void step(Wave& w, Launch& launch, u64* executed) {
  const Inst& i = w.program->insts[w.pc];
  ++executed[w.pc];
  bool unwritten = check_before(w, i, launch);
  if (launch.checks(kCheckHazards))
    check_hazards(w, i, launch);
  if (!launch.beyond.empty() && launch.beyond[w.pc]) [[unlikely]]
    report_beyond(w, i, launch);
  w.jumped = false;
  u64 exec = w.exec();
  i.exec(w, i);
  if (launch.trace) [[unlikely]]
    launch.trace(w, i, exec);
  mark_after(w, i, unwritten);
  ++w.steps;
  if (w.jumped)
    pass_jump(w);
  if (w.jumped || w.state == WaveState::Done)
    return;
  if (i.next < 0) [[unlikely]]
    fail_next(w, i);
  w.pc = static_cast<u32>(i.next);
}

void count_issue(Counters& c, Target target, const Inst& i, u64 times) {
  c.instructions += times;
  c.by_unit[static_cast<int>(i.info->unit)] += times;
  switch (i.info->unit) {
  case Unit::Mfma:
    c.mfma_cycles += i.cycles * times;
    break;
  case Unit::Valu:
    c.valu_cycles += kValuCycles * times;
    break;
  case Unit::Trans:
    c.trans_cycles += trans_cycles(target) * times;
    break;
  case Unit::Salu:
    c.salu_cycles += kSaluCycles * times;
    break;
  default:
    break;
  }
}

} // namespace emu

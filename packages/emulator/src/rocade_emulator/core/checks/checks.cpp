// Register checks; see checks.hpp. The common case is a few word tests per operand.
#include "checks/checks.hpp"

#include <cstdio>
#include <span>
#include <string>

#include "program.hpp"

namespace emu {
namespace {

bool is_lds_read(const Inst& i) { return i.info->unit == Unit::Lds; }

// LDS returns data in order, so a later LDS read may overwrite the destination of an earlier one.
bool overwrites_in_order(const Wave& w, const Inst& i, const Use& u) {
  if (!u.write || !is_lds_read(i))
    return false;
  for (u32 k = w.vm.head; k != w.vm.tail; ++k) {
    const InFlight& f = w.vm.items[k % 64];
    if (!f.scalar && f.count && f.first < u.index + u.count && u.index < f.first + f.count)
      return false;
  }
  return true;
}

// A load into one of these registers that is in flight, and the counter to wait for. The youngest, since all
// of them must be over.
struct Loading {
  const InFlight* load = nullptr;
  const char* counter = "";
};
Loading loading(const Wave& w, const Use& u) {
  auto youngest = [&](const Queue<64>& q) -> const InFlight* {
    for (u32 k = q.tail; k != q.head; --k)
      if (const InFlight& f = q.items[(k - 1) % 64];
          f.scalar == (u.kind == Kind::Scalar) && f.first < u.index + u.count && u.index < f.first + f.count)
        return &f;
    return nullptr;
  };
  const InFlight *vm = youngest(w.vm), *lgkm = youngest(w.lgkm);
  if (vm && lgkm && vm->pc == lgkm->pc)
    return {vm, "vmcnt and lgkmcnt"}; // FLAT
  return vm ? Loading{vm, "vmcnt"} : Loading{lgkm, "lgkmcnt"};
}

// "v3", or "v3..5".
std::string names_of(const Use& u) {
  const bool agpr = u.kind == Kind::Vector && u.index >= kAccBase;
  const int first = agpr ? u.index - kAccBase : u.index;
  std::string name = (u.kind == Kind::Scalar ? "s" : agpr ? "a" : "v") + std::to_string(first);
  return u.count == 1 ? name : name + ".." + std::to_string(first + u.count - 1);
}

void check_pending(Wave& w, const Inst& i, const Use& u, Launch& launch) {
  bool vector = u.kind == Kind::Vector;
  bool hit = vector ? w.pending.any(u.index, u.count) : w.s_pending.any(u.index, u.count);
  if (!hit || (vector && overwrites_in_order(w, i, u)))
    return;
  const auto [load, counter] = loading(w, u);
  char text[160];
  std::snprintf(text, sizeof(text),
                "%s %s while the load of pc 0x%x into it is in flight: missing s_waitcnt %s",
                u.write ? "write to" : "read of", names_of(u).c_str(),
                load ? w.program->insts[load->pc].pc : 0, counter);
  launch.report(w, i, kCheckWaits, Severity::Error, -1, u.index, text);
}

// How many registers of a source have to be defined.
int needed_of(const Inst& i, const Use& u) {
  switch (i.undefined) {
  case Undefined::Copied:
    return 0;
  case Undefined::Upward:
    return u.count == 2 ? 1 : u.count;
  default:
    return u.count;
  }
}

void check_written(Wave& w, const Inst& i, const Use& u, Launch& launch) {
  if (u.write)
    return;
  const int count = needed_of(i, u);
  if (count == 0)
    return;
  if (u.kind == Kind::Scalar) {
    if (!w.s_written.all(u.index, count))
      launch.report(w, i, kCheckUninitialised, Severity::Error, -1, u.index,
                    "read of a scalar register that was never written");
    return;
  }
  if (w.whole.all(u.index, count))
    return;
  u64 needed = u.whole_wave ? ~u64{0} : w.exec();
  for (int r = u.index; r < u.index + count; ++r)
    if (u64 missing = needed & ~w.written[r])
      return launch.report(w, i, kCheckUninitialised, Severity::Error, std::countr_zero(missing),
                           static_cast<u64>(r), "read of a vector register that was never written");
}

} // namespace

void check_uses(Wave& w, const Inst& i, Launch& launch) {
  bool waits = launch.checks(kCheckWaits);
  bool written = launch.checks(kCheckUninitialised);
  for (int k = 0; k < i.num_uses; ++k) {
    if (waits)
      check_pending(w, i, i.uses[k], launch);
    if (written)
      check_written(w, i, i.uses[k], launch);
  }
}

namespace {

// Lanes in which a register of a source is undefined.
u64 undefined_lanes(const Wave& w, Kind kind, int reg) {
  if (kind == Kind::Vector)
    return ~w.written[reg] & w.exec();
  return kind == Kind::Scalar && !w.s_written.test(reg) ? w.exec() : 0;
}

} // namespace

UndefinedLanes undefined_results(const Wave& w, const Inst& i) {
  UndefinedLanes found;
  if (i.undefined == Undefined::Copied) {
    for (int k = 0; k < i.dst.count; ++k)
      found.of[k] = undefined_lanes(w, i.src[0].kind, i.src[0].index + k);
    return found;
  }
  for (const Use& u : std::span(i.uses, i.num_uses))
    if (!u.write && u.count == 2)
      found.of[1] |= undefined_lanes(w, u.kind, u.index + 1);
  return found;
}

void unmark(Wave& w, const Inst& i, const UndefinedLanes& lanes) {
  for (int k = 0; k < i.dst.count; ++k) {
    int reg = i.dst.index + k;
    if (!lanes.of[k])
      continue;
    if (i.dst.kind == Kind::Scalar) {
      w.s_written.clear(reg);
    } else {
      w.written[reg] &= ~lanes.of[k];
      w.whole.clear(reg);
    }
  }
}

void mark_uses(Wave& w, const Inst& i) {
  for (int k = 0; k < i.num_uses; ++k) {
    const Use& u = i.uses[k];
    if (!u.write || u.kind == Kind::Scalar || w.whole.all(u.index, u.count))
      continue;
    u64 lanes = u.whole_wave ? ~u64{0} : w.exec();
    for (int r = u.index; r < u.index + u.count; ++r) {
      w.written[r] |= lanes;
      if (w.written[r] == ~u64{0})
        w.whole.set(r);
    }
  }
}

} // namespace emu

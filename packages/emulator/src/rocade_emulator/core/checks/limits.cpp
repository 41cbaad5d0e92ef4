// Registers beyond the kernel's allocation; see limits.hpp.
#include "checks/limits.hpp"

#include <cstdio>

#include "launch.hpp"

namespace emu {
namespace {

constexpr int kAddressable = 102; // s102 and up are VCC, EXEC and other registers that every wave has

bool is_scalar(const Use& u) { return u.kind == Kind::Scalar; }
bool is_agpr(const Use& u) { return u.kind == Kind::Vector && u.index >= kAccBase; }

// VGPRs may take the whole allocation, beyond accum_offset too (AITER does); AGPRs have the rest.
u32 available(const Use& u, const Allocation& has) {
  if (is_scalar(u))
    return has.sgprs;
  if (!is_agpr(u))
    return has.vgprs;
  return has.accum_offset ? has.vgprs - has.accum_offset : 0;
}
u32 last_of(const Use& u) { return u32{u.index} + u.count - 1 - (is_agpr(u) ? kAccBase : 0); }

bool is_beyond(const Use& u, const Allocation& has) {
  return !(is_scalar(u) && u.index >= kAddressable) && last_of(u) >= available(u, has);
}

const Use* first_beyond(const Inst& i, const Allocation& has) {
  for (int k = 0; k < i.num_uses; ++k)
    if (is_beyond(i.uses[k], has))
      return &i.uses[k];
  return nullptr;
}

} // namespace

void find_beyond(Launch& launch, const Allocation& has) {
  const auto& insts = launch.program->insts;
  launch.beyond.clear();
  launch.allocation = has;
  if (has.vgprs == 0 || !launch.checks(kCheckBounds))
    return;
  for (std::size_t k = 0; k < insts.size(); ++k) {
    if (!first_beyond(insts[k], has))
      continue;
    launch.beyond.resize(insts.size());
    launch.beyond[k] = 1;
  }
}

void report_beyond(Wave& w, const Inst& i, Launch& launch) {
  const Use& u = *first_beyond(i, launch.allocation);
  char text[96];
  std::snprintf(text, sizeof(text), "%s of %s%u, but the kernel has %u registers of that kind",
                u.write ? "write" : "read",
                is_scalar(u) ? "s"
                : is_agpr(u) ? "a"
                             : "v",
                last_of(u), available(u, launch.allocation));
  launch.report(w, i, kCheckBounds, Severity::Error, -1, u.index, text);
}

} // namespace emu

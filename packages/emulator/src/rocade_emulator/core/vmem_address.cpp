// Address arithmetic of vector memory; see vmem_address.hpp.
#include "vmem_address.hpp"

#include <algorithm>
#include <cstring>

#include "counters.hpp"
#include "group.hpp"
#include "launch.hpp"
#include "lds.hpp"
#include "registers.hpp"
#include "waits.hpp"

namespace emu {
namespace {

u64 vector64(const Wave& w, int reg, int lane) { return u64{w.v[reg + 1][lane]} << 32 | w.v[reg][lane]; }

// Raw buffers: stride 0 or no index. The descriptor counts bytes; the check includes soffset (measured on
// production kernels; see docs/pages/emulator.md).
struct Descriptor {
  u64 base;
  u32 stride, records;
};
Descriptor descriptor_of(const Wave& w, const Operand& op) {
  const u32* s = &w.s[op.index];
  return {(u64{s[1] & 0xffff} << 32) | s[0], s[1] >> 16 & 0x3fff, s[2]};
}

void buffer_addresses(const Wave& w, const Inst& i, u32 bytes, Addresses& a) {
  Descriptor d = descriptor_of(w, i.src[2]);
  bool offen = has(i, Modifiers::kOffen), idxen = has(i, Modifiers::kIdxen);
  alignas(64) static constexpr Row kZeros = {};
  const u32* indices = idxen ? w.v[i.src[0].index] : kZeros;
  const u32* offsets = offen ? w.v[i.src[0].index + idxen] : kZeros;
  const u64 scalar = read_scalar(w, i.src[3]), fixed = static_cast<u64>(i.offset);
  const bool structured = d.stride != 0 && idxen;
  Flags out;
  for (int l = 0; l < kLanes; ++l) {
    u64 offset = fixed + offsets[l];
    a.at[l] = d.base + scalar + offset + u64{indices[l]} * d.stride;
    out[l] = structured ? indices[l] >= d.records : offset + scalar + bytes > d.records;
  }
  a.clamped = mask_of(out);
}

// Private memory of a lane: an address inside the lane's own bytes, or 0, which touch_memory reports.
u64 private_address(const Wave& w, int lane, u64 offset, u32 bytes) {
  if (offset > w.scratch_bytes || bytes > w.scratch_bytes - offset)
    return 0;
  return reinterpret_cast<u64>(w.scratch) + u64{w.scratch_bytes} * static_cast<u64>(lane) + offset;
}

// Note a write; whether a read finds all bytes written.
bool mark_scratch(Wave& w, u64 address, u32 bytes, bool write) {
  std::vector<u8>& defined = w.group->scratch_defined;
  if (defined.empty())
    return true;
  u64 first = address - reinterpret_cast<u64>(w.group->scratch.data());
  return mark_bytes(defined.data(), first, bytes, write);
}

// Whether it is private memory of the wave; its lanes' bytes lie one after the other.
bool in_scratch(const Wave& w, u64 address, u32 bytes) {
  u64 all = u64{w.scratch_bytes} * kLanes, offset = address - reinterpret_cast<u64>(w.scratch);
  return w.scratch && offset < all && bytes <= all - offset;
}

bool is_flat(const Inst& i) { return i.info->format == Format::Flat && i.info->opcode < kSegment; }

} // namespace

template <Space kSpace> Addresses addresses_of(const Wave& w, const Inst& i, u32 bytes) {
  Addresses a;
  a.lanes = w.exec();
  if constexpr (kSpace == Space::Buffer) {
    buffer_addresses(w, i, bytes, a);
    return a;
  }
  bool has_scalar = i.src[2].kind == Kind::Scalar, has_vector = i.src[0].kind == Kind::Vector;
  for (int l = 0; l < kLanes; ++l) {
    u64 base;
    if constexpr (kSpace == Space::Scratch) {
      base = (has_scalar ? w.s[i.src[2].index] : 0) + u64{has_vector ? w.v[i.src[0].index][l] : 0};
    } else {
      base =
          has_scalar ? read_scalar64(w, i.src[2]) + w.v[i.src[0].index][l] : vector64(w, i.src[0].index, l);
    }
    a.at[l] = base + static_cast<u64>(i.offset);
    if constexpr (kSpace == Space::Scratch)
      a.at[l] = private_address(w, l, a.at[l], bytes);
    if constexpr (kSpace == Space::Flat)
      if (a.at[l] >> 32 == kPrivateAperture)
        a.at[l] = private_address(w, l, static_cast<u32>(a.at[l]), bytes);
  }
  return a;
}
template Addresses addresses_of<Space::Flat>(const Wave&, const Inst&, u32);
template Addresses addresses_of<Space::Global>(const Wave&, const Inst&, u32);
template Addresses addresses_of<Space::Scratch>(const Wave&, const Inst&, u32);
template Addresses addresses_of<Space::Buffer>(const Wave&, const Inst&, u32);

bool plain_access(Wave& w, const Addresses& a, u32 bytes, bool write) {
  const Range* range = w.group->launch->memory->last(w.range_hint);
  if (!range || range->element || range->defined || (write && !range->writable))
    return false;
  u64 lanes = a.lanes & ~a.clamped, low = ~u64{0}, high = 0, bits = 0;
  for (u64 m = lanes; m; m &= m - 1) {
    u64 at = a.at[std::countr_zero(m)];
    low = std::min(low, at);
    high = std::max(high, at);
    bits |= at + range->shift;
  }
  if (!lanes || bits % std::min(bytes, 4u))
    return false;
  if (high - low >= u64{1} << 48)
    return false; // so that the sum below does not wrap
  return range->spans(low, high - low + bytes);
}

u8* touch_memory(Wave& w, const Inst& i, int lane, u64 address, u32 bytes, bool write) {
  if (address >> 32 == kSharedAperture && is_flat(i))
    return touch_lds(w, i, lane, static_cast<u32>(address), bytes, write ? Access::Write : Access::Read);
  Launch& launch = *w.group->launch;
  if (in_scratch(w, address, bytes)) {
    u64 scratch = reinterpret_cast<u64>(w.scratch);
    if (launch.checks(kCheckAlignment) && (address - scratch) % w.scratch_bytes % std::min(bytes, 4u))
      launch.report(w, i, kCheckAlignment, Severity::Error, lane, address - scratch,
                    "misaligned access to private memory");
    if (!mark_scratch(w, address, bytes, write))
      launch.report(w, i, kCheckUninitialised, Severity::Error, lane, address - scratch,
                    "read of private memory that was never written");
    return reinterpret_cast<u8*>(address);
  }
  Range* range = launch.memory->find(address, bytes, write, w.range_hint);
  if (!range || (write && !range->writable)) {
    const char* what =
        !range ? (write ? "write out of bounds" : "read out of bounds") : "write to a read-only range";
    launch.report(w, i, kCheckBounds, Severity::Error, lane, address, what);
    return nullptr;
  }
  if (launch.checks(kCheckAlignment) && (address + range->shift) % std::min(bytes, 4u))
    launch.report(w, i, kCheckAlignment, Severity::Error, lane, address, "misaligned global access");
  if (range->defined && !range->mark(address, bytes, write) && launch.checks(kCheckUninitialised) &&
      !launch.memory->defined(address, bytes))
    launch.report(w, i, kCheckUninitialised, Severity::Error, lane, address,
                  "read of memory that was never written");
  return reinterpret_cast<u8*>(address);
}

void count_memory(Wave& w, const Addresses& a, u32 bytes, bool plain, bool write) {
  const Memory& memory = *w.group->launch->memory;
  u64 placed[kLanes], global = 0, scratch = 0, shared = 0;
  u32 offsets[kLanes];
  u64 lanes = a.lanes & ~a.clamped;
  if (plain) {
    u64 shift = memory.last(w.range_hint)->shift;
    for (int l = 0; l < kLanes; ++l)
      placed[l] = a.at[l] + shift;
    return count_global(w, placed, lanes, bytes, write);
  }
  for (u64 m = lanes; m; m &= m - 1) {
    int l = std::countr_zero(m);
    if (in_scratch(w, a.at[l], bytes)) {
      scratch |= u64{1} << l;
      offsets[l] = static_cast<u32>((a.at[l] - reinterpret_cast<u64>(w.scratch)) % w.scratch_bytes);
    } else if (a.at[l] >> 32 == kSharedAperture) {
      shared |= u64{1} << l;
      offsets[l] = static_cast<u32>(a.at[l]);
    } else if (const Range* range = memory.around(a.at[l], bytes, w.range_hint)) {
      global |= u64{1} << l;
      placed[l] = a.at[l] + range->shift;
    }
  }
  count_global(w, placed, global, bytes, write);
  count_scratch(w, offsets, scratch, bytes, write);
  count_lds(w, offsets, shared, bytes, write ? LdsUse::Write : LdsUse::Read);
}

void load_to_lds(Wave& w, const Inst& i, const Addresses& a, u32 bytes, bool is_signed) {
  u32 slot;
  StagedLds& s = staged_lds(w, slot);
  // gfx950's 160 KiB of LDS need more than the 16 bits of M0 that gfx942 looks at.
  u32 m0 = w.program->target == Target::Gfx950 ? w.s[kM0] : w.s[kM0] & 0xffff;
  s.base = m0 + static_cast<u32>(i.offset);
  s.bytes = std::max(bytes, 4u);
  s.lanes = a.lanes;
  std::memset(s.data, 0, s.bytes * kLanes);
  bool plain = plain_access(w, a, bytes, false);
  for (u64 m = a.lanes & ~a.clamped; m; m &= m - 1) {
    int l = std::countr_zero(m);
    u8* data = s.data + static_cast<u32>(l) * s.bytes;
    const u8* from =
        plain ? reinterpret_cast<const u8*>(a.at[l]) : touch_memory(w, i, l, a.at[l], bytes, false);
    if (from)
      std::memcpy(data, from, bytes);
    if (is_signed && data[bytes - 1] & 0x80)
      std::memset(data + bytes, 0xff, 4 - bytes);
  }
  count_memory(w, a, bytes, plain, false);
  issue_vm(w, {.pc = w.pc, .to_lds = true, .sequence = w.group->sequence, .lds_slot = slot});
}

} // namespace emu

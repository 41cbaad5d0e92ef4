// Register access of the execution engine; see registers.hpp for the promises.
#include "registers.hpp"

namespace emu {
namespace {

void broadcast(u32* row, u32 value) {
  for (int l = 0; l < kLanes; ++l)
    row[l] = value;
}

int width_of(Select s) { return s >= Select::Word0 ? 16 : s == Select::Dword ? 32 : 8; }
int shift_of(Select s) {
  switch (s) {
  case Select::Byte1:
    return 8;
  case Select::Byte2:
  case Select::Word1:
    return 16;
  case Select::Byte3:
    return 24;
  default:
    return 0;
  }
}

void select_part(const Operand& op, u32* row) {
  int shift = shift_of(op.select), width = width_of(op.select);
  if (op.sign_extend)
    for (int l = 0; l < kLanes; ++l)
      row[l] = static_cast<u32>(static_cast<i32>(row[l] << (32 - width - shift)) >> (32 - width));
  else
    for (int l = 0; l < kLanes; ++l)
      row[l] = row[l] >> shift & ((u64{1} << width) - 1);
}

// SDWA: the result goes to a part of the destination; the rest is zero, the sign, or kept.
void place_part(const Inst& i, const u32* old, u32* row) {
  auto part = static_cast<Select>(field(i, Modifiers::kDstSelShift, 3));
  if (part == Select::Dword)
    return;
  u32 unused = field(i, Modifiers::kDstUnusedShift, 2);
  int shift = shift_of(part), width = width_of(part);
  u32 mask = ((1u << width) - 1) << shift;
  for (int l = 0; l < kLanes; ++l) {
    u32 value = row[l] << shift & mask;
    u32 sign = unused == 1 && (row[l] >> (width - 1) & 1) ? ~(mask | (mask - 1)) & ~mask : 0;
    row[l] = unused == 2 ? (old[l] & ~mask) | value : value | sign;
  }
}

void blend(u32* dst, const u32* src, const u32* mask) {
  for (int l = 0; l < kLanes; ++l)
    dst[l] = (src[l] & mask[l]) | (dst[l] & ~mask[l]);
}

void store_row(Wave& w, int reg, const u32* src, u64 lanes) {
  if (lanes == ~u64{0}) {
    std::memcpy(w.v[reg], src, sizeof(Row));
  } else if (lanes == w.exec()) {
    blend(w.v[reg], src, w.exec_row);
  } else {
    alignas(64) u32 mask[kLanes];
    spread(lanes, mask);
    for (u32& m : mask)
      m = -m;
    blend(w.v[reg], src, mask);
  }
}

// Source lane of each DPP control, or -1 where the pattern runs off its row or wave.
int dpp_source(u32 control, int lane) {
  int row = lane & ~15, in_row = lane & 15, n = control & 15;
  if (control <= 0xff)
    return (lane & ~3) | (control >> 2 * (lane & 3) & 3);
  switch (control & ~15u) {
  case 0x100:
    return in_row + n < 16 ? lane + n : -1; // row_shl
  case 0x110:
    return in_row - n >= 0 ? lane - n : -1; // row_shr
  case 0x120:
    return row | ((in_row - n) & 15); // row_ror
  case 0x150:
    return row | n; // row_newbcast
  }
  switch (control) {
  case 0x130:
    return lane < 63 ? lane + 1 : -1; // wave_shl
  case 0x134:
    return (lane + 1) & 63; // wave_rol
  case 0x138:
    return lane - 1; // wave_shr
  case 0x13c:
    return (lane - 1) & 63; // wave_ror
  case 0x140:
    return row | (15 - in_row); // row_mirror
  case 0x141:
    return (lane & ~7) | (7 - (lane & 7)); // row_half_mirror
  case 0x142:
    return row - 1; // row_bcast:15, from the end of the row before
  case 0x143:
    return lane >= 32 ? 31 : -1; // row_bcast:31
  }
  return -1;
}

} // namespace

u32 read_scalar(const Wave& w, const Operand& op) {
  switch (op.kind) {
  case Kind::Scalar:
    return w.s[op.index];
  case Kind::Constant:
    return static_cast<u32>(op.value);
  case Kind::Scc:
    return w.scc;
  case Kind::VccZero:
    return w.vcc() == 0;
  case Kind::ExecZero:
    return w.exec() == 0;
  case Kind::Vector:
    return w.v[op.index][0]; // not encodable; the decoder refuses it
  default:
    return 0;
  }
}

u64 read_scalar64(const Wave& w, const Operand& op) {
  if (op.kind == Kind::Scalar)
    return u64{w.s[op.index + 1]} << 32 | w.s[op.index];
  return op.kind == Kind::Constant ? op.value : read_scalar(w, op);
}

void write_scalar(Wave& w, const Operand& dst, u32 value) {
  w.s[dst.index] = value;
  if (dst.index >= kExecLo)
    w.refresh_exec();
}

void write_scalar64(Wave& w, const Operand& dst, u64 value) {
  w.s[dst.index] = static_cast<u32>(value);
  w.s[dst.index + 1] = static_cast<u32>(value >> 32);
  if (dst.index >= kExecLo)
    w.refresh_exec();
}

void fetch_raw(const Wave& w, const Operand& op, int regs, Fetched& out) {
  if (op.kind == Kind::Vector) {
    std::memcpy(out.lo, w.v[op.index], sizeof(Row));
    if (regs == 2)
      std::memcpy(out.hi, w.v[op.index + 1], sizeof(Row));
  } else if (regs == 2) {
    u64 value = read_scalar64(w, op);
    broadcast(out.lo, static_cast<u32>(value));
    broadcast(out.hi, static_cast<u32>(value >> 32));
  } else {
    broadcast(out.lo, read_scalar(w, op));
  }
  if (op.select != Select::Dword)
    select_part(op, out.lo);
}

void store_rows(Wave& w, const Inst& i, const u32* lo, const u32* hi, u64 lanes) {
  alignas(64) u32 row[kLanes];
  int reg = i.dst.index;
  if (has(i, Modifiers::kSdwa)) {
    std::memcpy(row, lo, sizeof(row));
    place_part(i, w.v[reg], row);
    lo = row;
  } else if (has(i, Modifiers::kDstHigh)) {
    for (int l = 0; l < kLanes; ++l)
      row[l] = lo[l] << 16 | (w.v[reg][l] & 0xffff);
    lo = row;
  } else if (has(i, Modifiers::kKeepHigh)) {
    for (int l = 0; l < kLanes; ++l)
      row[l] = (w.v[reg][l] & 0xffff0000u) | (lo[l] & 0xffff);
    lo = row;
  }
  store_row(w, reg, lo, lanes);
  if (hi)
    store_row(w, reg + 1, hi, lanes);
}

u64 apply_dpp(const Dpp& dpp, u64 exec, Fetched& source) {
  u64 reached = 0;
  alignas(64) u32 from[kLanes];
  std::memcpy(from, source.lo, sizeof(from));
  for (int l = 0; l < kLanes; ++l) {
    bool enabled = (dpp.row_mask >> (l >> 4) & 1) && (dpp.bank_mask >> (l >> 2 & 3) & 1);
    int s = dpp_source(dpp.control, l);
    bool valid = s >= 0 && (exec >> s & 1);
    source.lo[l] = valid ? from[s] : 0;
    if (enabled && (valid || dpp.bound_control))
      reached |= u64{1} << l;
  }
  return reached;
}

} // namespace emu

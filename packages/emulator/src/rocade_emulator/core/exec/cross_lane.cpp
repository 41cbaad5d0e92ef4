// Meanings of the lane-moving instructions.
#include "cross_lane.hpp"

#include <cstring>
#include <string_view>
#include <utility>

namespace emu {
namespace {

// Swap, in every block of 2 * half lanes, the high half of the destination with the low half of the source.
void swap_halves(Wave& w, const Inst& i, int half) {
  u32* dst = w.v[i.dst.index];
  u32* src = w.v[i.src[0].index];
  for (int block = 0; block < kLanes; block += 2 * half)
    for (int l = block; l < block + half; ++l)
      std::swap(dst[l + half], src[l]);
}

void count_below(Wave& w, const Inst& i, int first) {
  Fetched mask, base;
  fetch_raw(w, i.src[0], 1, mask);
  fetch_raw(w, i.src[1], 1, base);
  for (int l = 0; l < kLanes; ++l) {
    int bits = l - first; // lanes below this one that the mask word covers
    u32 below = bits <= 0 ? 0 : bits >= 32 ? ~0u : (1u << bits) - 1;
    base.lo[l] += static_cast<u32>(std::popcount(mask.lo[l] & below));
  }
  store_rows(w, i, base.lo, nullptr, w.exec());
}

} // namespace

void v_nop(Wave&, const Inst&) {}

void v_readfirstlane_b32(Wave& w, const Inst& i) {
  int lane = w.exec() ? std::countr_zero(w.exec()) : 0;
  write_scalar(w, i.dst,
               i.src[0].kind == Kind::Vector ? w.v[i.src[0].index][lane] : read_scalar(w, i.src[0]));
}

void v_readlane_b32(Wave& w, const Inst& i) {
  write_scalar(w, i.dst, w.v[i.src[0].index][read_scalar(w, i.src[1]) & 63]);
}

void v_writelane_b32(Wave& w, const Inst& i) {
  w.v[i.dst.index][read_scalar(w, i.src[1]) & 63] = read_scalar(w, i.src[0]);
}

void v_swap_b32(Wave& w, const Inst& i) {
  for (int l = 0; l < kLanes; ++l)
    if (w.exec() >> l & 1)
      std::swap(w.v[i.dst.index][l], w.v[i.src[0].index][l]);
}

void v_permlane16_swap_b32(Wave& w, const Inst& i) { swap_halves(w, i, 16); }
void v_permlane32_swap_b32(Wave& w, const Inst& i) { swap_halves(w, i, 32); }
void v_mbcnt_lo_u32_b32(Wave& w, const Inst& i) { count_below(w, i, 0); }
void v_mbcnt_hi_u32_b32(Wave& w, const Inst& i) { count_below(w, i, 32); }

OpInfo cross_lane_row(const char* name, Format format, int opcode, Target target, Exec exec) {
  OpInfo row{name, format, Unit::Valu, static_cast<u16>(opcode), target, exec, Type::B32, Type::None, {}};
  std::string_view n = name;
  if (n == "v_nop")
    row.dst = Type::None;
  else
    row.src[0] = Type::B32;
  if (n.starts_with("v_mbcnt") || n == "v_readlane_b32" || n == "v_writelane_b32")
    row.src[1] = Type::B32;
  return row;
}

} // namespace emu

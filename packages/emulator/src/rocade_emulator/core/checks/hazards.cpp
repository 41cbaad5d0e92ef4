// The check of wait states; see hazards.hpp for its use and hazards.inc for the rules.
#include "checks/hazards.hpp"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string_view>

#include "launch.hpp"
#include "modifiers.hpp"
#include "program.hpp"
#include "text.hpp"
#include "wave.hpp"

namespace emu {
namespace {

// More states than any rule asks for, after a matrix instruction and after others.
constexpr u64 kLongest = 24, kBrief = 6;

// States that a jump and a barrier take. No manual says, and compilers count 1. AITER's kernels for gfx942
// need at least this: they read the result of an MFMA that takes 11 states after 3 scalar instructions and a
// jump, or after a barrier and 6 instructions.
constexpr u64 kJump = 8;
constexpr u8 kBarrier = 5;

// ---- Classes of instructions

enum : u32 {
  kValu = 1u << 0,
  kPlainValu = 1u << 1, // no matrix instruction
  kNonTrans = 1u << 2,
  kTrans = 1u << 3,
  kDpp = 1u << 4,
  kReadLane = 1u << 5,   // v_readlane, v_readfirstlane
  kLaneOp = 1u << 6,     // those and v_writelane
  kLaneSelect = 1u << 7, // v_readlane, v_writelane
  kPermlane = 1u << 8,   // swaps of gfx950
  kDivFmas = 1u << 9,
  kFma64 = 1u << 10,
  kDot = 1u << 11,
  kPartial = 1u << 12,     // moves its result to another part of the register
  kValuScalar = 1u << 13,  // VALU that writes scalar registers
  kValuExec = 1u << 14,    // VALU that writes EXEC
  kValuVector = 1u << 15,  // VALU that writes vector registers, no matrix instruction
  kPlainVector = 1u << 16, // of these, no dot product
  kUnswapped = 1u << 28,   // of these, no v_permlane
  kReadsZero = 1u << 17,   // vccz or execz as a source
  kXdl = 1u << 18,         // matrix instructions but those on f32 and f64
  kSgemm = 1u << 19,       // f32
  kDgemm = 1u << 20,       // f64
  kVmem = 1u << 21,
  kMemory = 1u << 22,    // VMEM and LDS
  kWideStore = 1u << 23, // data of more than 8 bytes
  kReadsM0 = 1u << 24,
  kSaluM0 = 1u << 25, // writes M0
  kSetreg = 1u << 26,
  kGetreg = 1u << 27,
  kMfma = kXdl | kSgemm | kDgemm,
  kVectorOp = kPlainValu | kMemory,
};

std::span<const Use> uses_of(const Inst& i) { return {i.uses, i.num_uses}; }

bool writes_scalar(const Inst& i, int first, int count) {
  for (const Use& u : uses_of(i))
    if (u.write && u.kind == Kind::Scalar && u.index < first + count && first < u.index + u.count)
      return true;
  return false;
}
bool writes(const Inst& i, Kind kind) {
  return std::ranges::any_of(uses_of(i), [&](const Use& u) { return u.write && u.kind == kind; });
}

u32 matrix_class(std::string_view name) {
  if (name.ends_with("_f64"))
    return kDgemm;
  return name.ends_with("_f32") ? kSgemm : kXdl;
}

bool is_partial(const Inst& i, std::string_view name) {
  if (has(i, Modifiers::kSdwa))
    return field(i, Modifiers::kDstSelShift, 3) != static_cast<u32>(Select::Dword);
  if (name.starts_with("v_cvt_scalef32_pk_fp4")) // LLVM waits after all of them
    return true;
  bool byte = name.starts_with("v_cvt_sr_") || name.starts_with("v_cvt_scalef32_sr_");
  return has(i, Modifiers::kDstHigh) || (byte && i.op_sel >> 2 & 1);
}

u32 valu_classes(const Inst& i, std::string_view name) {
  u32 c = kValu | kPlainValu | (i.info->unit == Unit::Trans ? kTrans : kNonTrans);
  auto add = [&](bool on, u32 bits) { c |= on ? bits : 0; };
  bool reads_lane = name == "v_readlane_b32" || name == "v_readfirstlane_b32";
  bool selects = name == "v_readlane_b32" || name == "v_writelane_b32";
  bool dot = name.starts_with("v_dot"), permlane = name.starts_with("v_permlane");
  add(i.dpp.on, kDpp);
  add(reads_lane, kReadLane);
  add(reads_lane || selects, kLaneOp);
  add(selects, kLaneSelect);
  add(permlane, kPermlane);
  add(name.starts_with("v_div_fmas"), kDivFmas);
  add(name == "v_fma_f64" || name == "v_fmac_f64", kFma64);
  add(dot, kDot);
  add(is_partial(i, name), kPartial);
  add(writes(i, Kind::Scalar), kValuScalar);
  add(writes_scalar(i, kExecLo, 2), kValuExec);
  if (writes(i, Kind::Vector)) {
    add(true, kValuVector);
    add(!dot, kPlainVector);
    add(!permlane, kUnswapped);
  }
  for (const Operand& s : i.src)
    add(s.kind == Kind::VccZero || s.kind == Kind::ExecZero, kReadsZero);
  return c;
}

u32 memory_classes(const Inst& i) {
  if (i.info->unit == Unit::Lds)
    return kMemory;
  u32 c = kMemory | kVmem;
  if (has(i, Modifiers::kLds) && i.info->format == Format::Flat)
    c |= kReadsM0;
  bool stores = i.src[1].kind == Kind::Vector;
  bool excused = i.info->format == Format::Mubuf && i.src[3].kind == Kind::Scalar;
  return stores && i.src[1].count > 2 && !excused ? c | kWideStore : c;
}

u32 classes_of(const Inst& i) {
  std::string_view name = i.info->mnemonic;
  switch (i.info->unit) {
  case Unit::Mfma:
    return kValu | kNonTrans | matrix_class(name);
  case Unit::Valu:
  case Unit::Trans:
    return valu_classes(i, name);
  case Unit::Vmem:
  case Unit::Lds:
    return memory_classes(i);
  case Unit::Message:
    return kReadsM0;
  case Unit::Salu:
    if (name.starts_with("s_setreg"))
      return kSetreg;
    if (name.starts_with("s_getreg"))
      return kGetreg;
    return writes_scalar(i, kM0, 1) ? u32{kSaluM0} : 0;
  default:
    return 0;
  }
}

// ---- How two instructions touch the same register

struct Span {
  int first, count;
};
bool overlap(Span a, Span b) { return a.first < b.first + b.count && b.first < a.first + a.count; }
Span span_of(const Operand& op) { return {op.index, op.count}; }
bool is_vector(const Operand& op) { return op.kind == Kind::Vector; }

// Whether a use of `i` that `wanted` accepts overlaps one of the registers that `first` writes.
template <class F> int written_and(const Inst& first, const Inst& i, Kind kind, F&& wanted) {
  for (const Use& w : uses_of(first)) {
    if (!w.write || w.kind != kind)
      continue;
    for (const Use& u : uses_of(i))
      if (u.kind == kind && wanted(u) && overlap({w.index, w.count}, {u.index, u.count}))
        return std::max(w.index, u.index);
  }
  return -1;
}
int written_and_operand(const Inst& first, const Operand& op) {
  for (const Use& w : uses_of(first))
    if (w.write && w.kind == op.kind && overlap({w.index, w.count}, span_of(op)))
      return std::max(w.index, op.index);
  return -1;
}
int overwritten(const Operand& op, const Inst& i) {
  if (!is_vector(op))
    return -1;
  for (const Use& u : uses_of(i))
    if (u.write && u.kind == Kind::Vector && overlap(span_of(op), {u.index, u.count}))
      return std::max(op.index, u.index);
  return -1;
}

// Each returns the first register that both touch, or -1.
using Touch = int (*)(const Inst& first, const Inst& i);

int Always(const Inst&, const Inst&) { return 0; }
int ReadsVector(const Inst& first, const Inst& i) {
  return written_and(first, i, Kind::Vector, [](const Use& u) { return !u.write; });
}
int Overwrites(const Inst& first, const Inst& i) {
  return written_and(first, i, Kind::Vector, [](const Use& u) { return u.write; });
}
int Touches(const Inst& first, const Inst& i) {
  return written_and(first, i, Kind::Vector, [](const Use&) { return true; });
}
int ReadsScalar(const Inst& first, const Inst& i) {
  return written_and(first, i, Kind::Scalar, [](const Use& u) { return !u.write; });
}
int Source0(const Inst& first, const Inst& i) { return written_and_operand(first, i.src[0]); }
int LaneSelect(const Inst& first, const Inst& i) { return written_and_operand(first, i.src[1]); }
int ReadsConstant(const Inst& first, const Inst& i) {
  for (int k = 0; k < 3; ++k) {
    if (i.src[k].kind != Kind::Scalar || i.info->src[k] == Type::Mask)
      continue;
    if (int r = written_and_operand(first, i.src[k]); r >= 0)
      return r;
  }
  return -1;
}
int ReadsVcc(const Inst& first, const Inst&) { return writes_scalar(first, kVccLo, 2) ? kVccLo : -1; }
int ZeroFlag(const Inst& first, const Inst& i) {
  for (const Operand& s : i.src) {
    if (s.kind == Kind::VccZero && writes_scalar(first, kVccLo, 2))
      return kVccLo;
    if (s.kind == Kind::ExecZero && writes_scalar(first, kExecLo, 2))
      return kExecLo;
  }
  return -1;
}
int SameHwreg(const Inst& first, const Inst& i) {
  return (first.simm & 63) == (i.simm & 63) ? static_cast<int>(i.simm & 63) : -1;
}
int OverwritesData(const Inst& first, const Inst& i) { return overwritten(first.src[1], i); }
int OverwritesC(const Inst& first, const Inst& i) { return overwritten(first.src[2], i); }
int ReadsAB(const Inst& first, const Inst& i) {
  for (int k : {0, 1, 3, 4}) // scales are read as A and B are
    if (int r = written_and_operand(first, i.src[k]); r >= 0)
      return r;
  return -1;
}
bool same_c(const Inst& first, const Inst& i) {
  return is_vector(i.src[2]) && i.src[2].index == first.dst.index && i.src[2].count == first.dst.count;
}
int SameC(const Inst& first, const Inst& i) { return same_c(first, i) ? first.dst.index : -1; }
int OtherC(const Inst& first, const Inst& i) {
  return same_c(first, i) ? -1 : written_and_operand(first, i.src[2]);
}
int AfterDot(const Inst& first, const Inst& i) {
  return first.info == i.info ? ReadsAB(first, i) : Touches(first, i);
}

// ---- The rules

// States until the result of a matrix instruction on 8 or 16-bit types is in its registers.
constexpr int until_written(int passes, bool gfx950) {
  return std::min(passes + 3 + (gfx950 && passes != 2), 19);
}

struct Rule {
  u32 first, second; // classes
  Touch touch;
  int (*states)(int passes, bool gfx950);
  const char* what;
};

constexpr Rule kRules[] = {
#define HAZARD(first, second, touch, states, what, source)                                                   \
  {first, second, &touch, [](int passes, bool gfx950) -> int { return (void)passes, (void)gfx950, states; }, \
   what},
#include "checks/hazards.inc"
#undef HAZARD
};
static_assert(std::size(kRules) <= 64, "Hazards::makes and meets have a bit a rule");

void report(Wave& w, const Inst& i, Launch& launch, const Rule& rule, const Inst& first, int reg, int needed,
            u64 found) {
  char text[sizeof(Report::text)];
  std::snprintf(text, sizeof(text), "%s: %d wait states needed after pc 0x%x (%.40s), found %d", rule.what,
                needed, first.pc, text_of(first).c_str(), static_cast<int>(found));
  launch.report(w, i, kCheckHazards, Severity::Error, -1, static_cast<u64>(reg), text);
}

constexpr u64 rules_without_register() {
  u64 found = 0;
  for (std::size_t r = 0; r < std::size(kRules); ++r)
    if (kRules[r].touch == &Always)
      found |= u64{1} << r;
  return found;
}
constexpr u64 kAlways = rules_without_register();

template <std::size_t N>
void compare(Wave& w, const Inst& i, Launch& launch, const HazardState::Ring<N>& ring, u64 time, u64 reach) {
  bool gfx950 = w.program->target == Target::Gfx950;
  for (u32 k = 0; k < N; ++k) {
    const HazardState::Issued& past = ring.back(k);
    if (time - past.time > reach)
      return;
    for (u64 m = past.inst->hazards.makes & i.hazards.meets; m; m &= m - 1) {
      const Rule& rule = kRules[std::countr_zero(m)];
      u64 found = time - past.time - 1;
      int needed = rule.states(past.inst->hazards.passes, gfx950);
      if (static_cast<int>(found) >= needed)
        continue;
      if (int reg = rule.touch(*past.inst, i); reg >= 0)
        report(w, i, launch, rule, *past.inst, reg, needed, found);
    }
  }
}

void push_matrix(HazardState& h, const Inst& i, u64 time) {
  h.matrix_free = time + i.hazards.passes;
  h.matrix.push(time, i);
  h.hot = {};
  h.hot_until = time + kLongest;
  for (u32 k = 0; k < h.matrix.items.size() && time - h.matrix.back(k).time < kLongest; ++k) {
    const Inst& past = *h.matrix.back(k).inst;
    h.hot.set(past.dst.index, past.dst.count);
    if (is_vector(past.src[2]))
      h.hot.set(past.src[2].index, past.src[2].count);
  }
}

// Whether a matrix instruction of late can matter to `i`.
bool near_matrix(const HazardState& h, const Inst& i, u64 time) {
  return time < h.hot_until &&
         (i.touched.reads.meets(h.hot) || i.touched.writes.meets(h.hot) || i.hazards.meets & kAlways);
}

} // namespace

void find_hazards(Program& program) {
  u64 met = 0, made = 0;
  for (Inst& i : program.insts) {
    u32 classes = classes_of(i);
    i.hazards = {};
    std::string_view name = i.info->mnemonic;
    if (i.info->unit == Unit::Mfma)
      i.hazards.passes = i.cycles / 4;
    if (name == "s_nop")
      i.hazards.states = static_cast<u8>((i.simm & 15) + 1);
    if (name == "s_barrier")
      i.hazards.states = kBarrier;
    for (std::size_t r = 0; r < std::size(kRules); ++r) {
      if (classes & kRules[r].first)
        i.hazards.makes |= u64{1} << r;
      if (classes & kRules[r].second)
        i.hazards.meets |= u64{1} << r;
    }
    met |= i.hazards.meets;
    made |= i.hazards.makes;
  }
  for (Inst& i : program.insts) { // rules that nothing in this program can break cost nothing
    i.hazards.makes &= met;
    i.hazards.meets &= made;
  }
}

void check_hazards(Wave& w, const Inst& i, Launch& launch) {
  HazardState& h = w.hazards;
  // A matrix instruction waits until the unit has taken all passes of the one before.
  u64 time = i.hazards.passes ? std::max(h.now, h.matrix_free) : h.now;
  if (i.hazards.meets) {
    compare(w, i, launch, h.brief, time, kBrief);
    if (near_matrix(h, i, time))
      compare(w, i, launch, h.matrix, time, kLongest);
  }
  h.now = time + i.hazards.states;
  if (i.hazards.passes) {
    push_matrix(h, i, time);
  } else if (i.hazards.makes) {
    h.brief.push(time, i);
  }
}

void pass_jump(Wave& w) { w.hazards.now += kJump - 1; }

} // namespace emu

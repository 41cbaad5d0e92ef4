// The architectural state of one wave, and the state of the checks that follows it.
#pragma once

#include "bits.hpp"
#include "checks/hazards.hpp"
#include "inst.hpp"
#include "types.hpp"

namespace emu {

struct Group;   // workgroup: LDS, barrier, its waves (group.hpp)
struct Program; // decoded text (program.hpp)

// Memory operations in flight, oldest first. A counter wait retires them in order (gfx9: vmcnt covers loads
// and stores; lgkmcnt covers LDS in order and SMEM out of order, so that only lgkmcnt(0) proves an SMEM). A
// FLAT operation is in both queues, since it may reach LDS or memory.
struct InFlight {
  u32 pc = 0;
  bool scalar = false;    // destination is SGPRs
  bool unordered = false; // SMEM and FLAT: others may be done before it, so that only a wait for 0 proves it
  bool to_lds = false;    // direct-to-LDS: LDS is written when this retires
  u16 first = 0;          // destination registers
  u8 count = 0;
  u32 sequence = 0; // Group::sequence, of an operation in the lgkm queue and of a direct-to-LDS load
  u32 lds_slot = 0; // to_lds: entry of the wave's staged LDS writes
};

template <int Capacity> struct Queue {
  InFlight items[Capacity];
  u32 head = 0, tail = 0; // free running; size = tail - head
  u32 size() const { return tail - head; }
  bool full() const { return size() == Capacity - 1; } // a counter of 6 bits stalls at 63
  InFlight& push(const InFlight& f) { return items[tail++ % Capacity] = f; }
  const InFlight& front() const { return items[head % Capacity]; }
  void pop() { ++head; }
};

enum class WaveState : u8 { Running, AtBarrier, Sleeping, Done };

// MODE at the start, in bits that a change of which is not modelled: round to nearest even, denormals kept,
// dx10_clamp and IEEE on.
inline constexpr u32 kStartMode = 0x3f0, kModelledMode = 0x3ff;

struct Wave {
  alignas(64) u32 v[kVectorRegs][kLanes];
  alignas(64) u32 exec_row[kLanes]; // all ones in active lanes; kept equal to EXEC by set_exec
  u32 s[kScalarRegs];               // by operand code; EXEC and VCC live here too
  bool scc = false;
  u32 pc = 0; // index into Program::insts
  WaveState state = WaveState::Running;
  u32 mode = kStartMode; // MODE register: rounding, denormals, dx10_clamp, ieee
  u8 number = 0;         // in its workgroup
  u8 priority = 0;
  bool jumped = false;   // the instruction set pc itself
  bool yields = false;   // s_sleep: give the turn away
  u64 steps = 0;         // instructions executed
  u32 range_hint = 0;    // memory range hit last (memory.hpp)
  u8* scratch = nullptr; // private memory, scratch_bytes a lane
  u32 scratch_bytes = 0;
  Group* group = nullptr;
  const Program* program = nullptr;

  // Checks.
  BitSet<kVectorRegs> whole; // every lane written since the start
  u64 written[kVectorRegs];  // lanes written since the start
  BitSet<kScalarRegs> s_written;
  BitSet<kVectorRegs> pending; // destination of a load that no wait has covered
  BitSet<kScalarRegs> s_pending;
  Queue<64> vm; // vmcnt saturates at 63
  HazardState hazards;
  Queue<64> lgkm; // the hardware counts to 15 and stalls; deeper queues are stalls, not errors

  u64 exec() const { return u64{s[kExecLo + 1]} << 32 | s[kExecLo]; }
  u64 vcc() const { return u64{s[kVccLo + 1]} << 32 | s[kVccLo]; }
  void set_exec(u64 mask) {
    s[kExecLo] = static_cast<u32>(mask);
    s[kExecLo + 1] = static_cast<u32>(mask >> 32);
    refresh_exec();
  }
  void refresh_exec() {
    for (int half = 0; half < 2; ++half)
      for (int l = 0; l < 32; ++l)
        exec_row[32 * half + l] = -(s[kExecLo + half] >> l & 1);
  }
};

} // namespace emu

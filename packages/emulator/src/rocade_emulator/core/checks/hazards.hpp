// Wait states that the hardware does not insert itself (rows in hazards.inc): which rules an instruction is
// part of, and the check of one that is about to issue against those that issued shortly before.
#pragma once

#include <array>

#include "bits.hpp"

namespace emu {

struct Inst;
struct Wave;
struct Launch;
struct Program;

// What is known of a wave's recent past. Time is counted in wait states: one an instruction, more for s_nop.
struct HazardState {
  struct Issued {
    u64 time = 0;
    const Inst* inst = nullptr;
  };
  template <std::size_t N> struct Ring {
    std::array<Issued, N> items{};
    u32 count = 0; // free running
    void push(u64 time, const Inst& i) { items[count++ % N] = {time, &i}; }
    const Issued& back(u32 k) const { return items[(count - 1 - k) % N]; }
  };

  u64 now = 1024;      // of the next instruction: far from the zeros above
  u64 matrix_free = 0; // when the matrix unit can take the next instruction
  Ring<8> brief;       // all but matrix instructions
  Ring<16> matrix;
  BitSet<kVectorRegs> hot; // registers that those of late write, or read as C; valid before hot_until
  u64 hot_until = 0;
};

// Fill Inst::hazards of a whole program.
void find_hazards(Program& program);

// Report what is missing before `i`, and let its time pass.
void check_hazards(Wave& w, const Inst& i, Launch& launch);

// The instruction jumped, which takes longer.
void pass_jump(Wave& w);

} // namespace emu

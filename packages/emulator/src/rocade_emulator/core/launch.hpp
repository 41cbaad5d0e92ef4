// One launch: the program, its memory, what is checked, what was counted and found.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "checks/limits.hpp"
#include "memory.hpp"
#include "program.hpp"

namespace emu {

enum Check : u32 {
  kCheckWaits = 1u << 0,
  kCheckRaces = 1u << 1,
  kCheckBounds = 1u << 2,
  kCheckUninitialised = 1u << 3,
  kCheckHazards = 1u << 4,
  kCheckAlignment = 1u << 5,
};

enum class Severity : u8 { Info, Error };

struct Report {
  Check check;
  Severity severity;
  u32 pc;
  u32 group[3];
  u32 wave;
  i32 lane;    // -1 when it is the whole wave
  u64 address; // memory or LDS byte address; register index for register checks
  u64 count;   // how often this (check, pc) was seen
  char text[160];
};

enum class Schedule : u8 { RoundRobin, RunToBarrier, Random };

struct Options {
  u32 checks = ~0u;
  Schedule schedule = Schedule::RoundRobin;
  u32 quantum = 1; // instructions a turn (RoundRobin); Random draws 1..quantum
  u64 seed = 0;
  u32 resident = 4; // workgroups interleaved on one host thread
  u32 threads = 1;
  u64 step_limit = 0;   // wave instructions in all; 0 means none
  u32 max_reports = 64; // distinct (check, pc) kept
};

// Totals of a launch. Cycles are issue clocks of the model that docs/pages/emulator.md states.
struct Counters {
  u64 instructions = 0;
  u64 by_unit[10] = {};
  u64 mfma_cycles = 0, valu_cycles = 0, trans_cycles = 0, salu_cycles = 0;
  u64 lds_cycles = 0, lds_ideal_cycles = 0;
  u64 bytes_read = 0, bytes_written = 0;
  u64 bytes_arguments = 0; // scalar loads of the argument block and the dispatch packet
  u64 cache_lines = 0, cache_lines_ideal = 0;
  u64 waves = 0, groups = 0;
  void add(const Counters& o);
};

// Sees an instruction after it ran; `exec` is the mask that it ran under.
using Trace = std::function<void(const Wave&, const Inst&, u64 exec)>;

struct Launch {
  const Program* program = nullptr;
  Memory* memory = nullptr;
  Options options;
  u32 grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  std::atomic<u64> steps{0};
  std::atomic<bool> stop{false};
  std::mutex lock; // guards reports and error
  std::vector<Report> reports;
  u64 dropped_reports = 0;
  std::string error;
  Counters counters;
  Trace trace;
  Allocation allocation;  // registers of a wave
  std::vector<u8> beyond; // by instruction: it names a register beyond them; empty when none does

  bool checks(Check c) const { return options.checks & c; }
  void report(const Wave& w, const Inst& i, Check check, Severity severity, i32 lane, u64 address,
              const char* text);
};

} // namespace emu

// A workgroup: its waves, its LDS with the shadow that finds races, and its barrier.
#pragma once

#include <memory>
#include <vector>

#include "wave.hpp"

namespace emu {

// A direct-to-LDS load that has not landed: written when its vmcnt retires.
struct StagedLds {
  u32 base = 0;  // LDS byte address of lane 0
  u32 bytes = 0; // bytes a lane; the lanes lie side by side in LDS and in `data`
  u64 lanes = 0;
  u8 data[kLanes * 16];
};

struct Group {
  u32 id[3] = {};
  std::vector<std::unique_ptr<Wave>> waves;
  std::vector<u8> lds;
  std::vector<i64> lds_writes, lds_reads; // LdsTag words, by 4-byte cell
  std::vector<u8> scratch;                // private memory: waves x lanes x scratch bytes
  std::vector<u8>
      scratch_defined; // a bit for each of those bytes that was written; empty when that is not checked
  u32 sequence = 1;    // number of the next operation on LDS
  u32 epoch_begin = 1; // the first one behind the last barrier
  u32 safe = 1;        // those before it are of an earlier epoch and over: nobody races with them
  u32 at_barrier = 0;
  u32 live = 0;
  std::vector<StagedLds> staged[16]; // by wave number; ring indexed by InFlight::lds_slot
  struct Launch* launch = nullptr;
  u64 bytes_read = 0, bytes_written = 0, bytes_arguments = 0;
  u64 lds_cycles = 0, lds_ideal_cycles = 0, cache_lines = 0, cache_lines_ideal = 0;
};

} // namespace emu

// A workgroup: its waves, its LDS with the shadow that finds races, and its barrier.
#pragma once

#include <memory>
#include <vector>

#include "wave.hpp"

namespace emu {

// Who touched a 4-byte cell of LDS last. A wave's accesses between two barriers carry the same epoch; two waves that
// touch a cell in one epoch, one of them writing, race, unless both are atomic or the write changes nothing.
struct LdsCell {
  u32 write_epoch = 0;
  u32 read_epoch = 0;
  u16 writers = 0;        // waves that wrote what stands there now, valid when write_epoch is the current one
  u16 readers = 0;        // waves that read in read_epoch
  u8 write_bytes = 0;     // bytes written by them in that epoch
  u8 read_bytes = 0;      // bytes read in read_epoch
  u8 defined = 0;         // bytes ever written
  bool atomic = false;    // they wrote by atomic operations
  u8 last_writer = 0, last_reader = 0;  // wave numbers
  u32 write_ticket = 0, read_ticket = 0;  // place of their operation in their lgkm queue: shows whether it is done
};

// A direct-to-LDS load that has not landed: written when its vmcnt retires.
struct StagedLds {
  u32 base = 0;              // LDS byte address of lane 0
  u32 bytes = 0;             // bytes a lane
  u64 lanes = 0;
  u8 data[kLanes * 16];
};

struct Group {
  u32 id[3] = {};
  std::vector<std::unique_ptr<Wave>> waves;
  std::vector<u8> lds;
  std::vector<LdsCell> shadow;
  std::vector<u8> scratch;   // private memory: waves x lanes x scratch bytes
  u32 epoch = 1;             // barriers passed, plus one
  u32 at_barrier = 0;
  u32 live = 0;
  std::vector<StagedLds> staged[16];  // by wave number; ring indexed by InFlight::lds_slot
  struct Launch* launch = nullptr;
  u64 bytes_read = 0, bytes_written = 0;
  u64 lds_cycles = 0, lds_ideal_cycles = 0, cache_lines = 0, cache_lines_ideal = 0;
};

}  // namespace emu

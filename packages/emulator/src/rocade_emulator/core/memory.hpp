// Device memory: registered ranges of host memory at their own addresses. A range may be a strided view,
// whose holes are out of bounds, and may start out undefined. A kernel sees host addresses; what depends on
// how memory is aligned goes by placed addresses, where each allocation begins as aligned as on a GPU.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "types.hpp"

namespace emu {

// `defined` has a bit a byte: set those of [first, first + bytes) (write), or say whether all are set (read).
bool mark_bytes(u8* defined, u64 first, u32 bytes, bool write);

// Cleared bytes whose untouched pages take no memory, as those of a huge buffer must not.
struct Unmap {
  u64 bytes = 0;
  void operator()(u8* at) const;
};
using SparseBytes = std::unique_ptr<u8[], Unmap>;
SparseBytes sparse_bytes(u64 bytes); // throws std::bad_alloc

struct Range {
  u64 begin = 0, end = 0; // host addresses of the outermost bytes
  u64 origin = 0;         // host address of its allocation
  u64 shift = 0;          // from a host address to a placed one; set by Memory::add
  bool writable = true;
  bool arguments = false; // of the launch: read through the scalar cache by every wave
  // View: element size and up to 8 dimensions by falling stride, in bytes; empty means every byte counts.
  u32 element = 0;
  std::vector<u64> sizes, strides;
  SparseBytes defined; // one bit a byte when the range starts undefined, else null

  // The hull holds these bytes; addresses may be near 2^64.
  bool spans(u64 address, u64 bytes) const {
    return address >= begin && address <= end && bytes <= end - address;
  }
  bool covers(u64 address, u32 bytes) const;
  // Define the bytes (write), or say whether all of them are defined (read).
  bool mark(u64 address, u32 bytes, bool write);
};

class Memory {
public:
  void add(Range range);
  // The range that begins here holds arguments.
  void mark_arguments(u64 begin);
  // The range that holds [address, address + bytes), or nullptr; of several, one that may be written if that
  // is what it is for. `hint` remembers the last hit of the caller.
  Range* find(u64 address, u32 bytes, bool write, u32& hint);
  // Whether each of these bytes was written, or started out defined in one of the ranges that share it.
  bool defined(u64 address, u32 bytes) const;
  // The range that was hit last, or nullptr.
  const Range* last(u32 hint) const { return hint < ranges_.size() ? &ranges_[hint] : nullptr; }
  // The range whose hull holds these bytes, holes included, or nullptr.
  const Range* around(u64 address, u32 bytes, u32 hint) const;

private:
  std::vector<Range> ranges_; // by address, disjoint hulls not required
  std::map<u64, u64> placed_; // placed address of each allocation, by its origin
};

} // namespace emu

// Device memory: registered ranges of host memory at their own addresses. A range may be a strided view,
// whose holes are out of bounds, and may start out undefined.
#pragma once

#include <vector>

#include "types.hpp"

namespace emu {

// `defined` has a bit a byte: set those of [first, first + bytes) (write), or say whether all are set (read).
bool mark_bytes(std::vector<u8>& defined, u64 first, u32 bytes, bool write);

struct Range {
  u64 begin = 0, end = 0; // host addresses of the outermost bytes
  bool readable = true, writable = true;
  // View: element size and up to 8 dimensions by falling stride, in bytes; empty means every byte counts.
  u32 element = 0;
  std::vector<u64> sizes, strides;
  std::vector<u8> defined; // one bit a byte when the range starts undefined, else empty

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
  // The range that holds [address, address + bytes), or nullptr. `hint` remembers the last hit of the caller.
  Range* find(u64 address, u32 bytes, u32& hint);
  // Whether the range that was hit last holds all of these bytes, without holes and defined.
  bool holds(u64 address, u64 bytes, bool write, u32 hint) const {
    if (hint >= ranges_.size())
      return false;
    const Range& r = ranges_[hint];
    return r.spans(address, bytes) && r.element == 0 && r.defined.empty() && (r.writable || !write);
  }

private:
  std::vector<Range> ranges_; // by address, disjoint hulls not required
};

} // namespace emu

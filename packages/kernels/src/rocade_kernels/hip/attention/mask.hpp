// The one place in the GPU kernels that knows which key a query sees, and which tiles of keys must be
// visited.
//
// A query sees an interval of keys: causal bounds it above, a window below. Positions are global; keys are
// counted from the first one of their request at their level.
#pragma once
#include "arch/mma.hpp"
#include "args.hpp"

namespace rocade {

using Args = ROCADE_CONSTANT AttentionArgs;
using Item = ROCADE_CONSTANT AttentionItem;

/// n * stride, in two products.
ROCADE_DEVICE u64 scaled(u32 n, i64 stride) {
  const u64 bits = static_cast<u64>(stride);
  return static_cast<u64>(n) * static_cast<u32>(bits) +
         (static_cast<u64>(n * static_cast<u32>(bits >> 32)) << 32);
}

/// Half-open; empty when begin >= end.
struct KeyRange {
  i32 begin, end;

  ROCADE_DEVICE bool contains(KeyRange other) const { return begin <= other.begin && other.end <= end; }
  ROCADE_DEVICE bool meets(KeyRange other) const { return begin < other.end && other.begin < end; }
};

template <class N> ROCADE_DEVICE N smaller(N a, N b) { return a < b ? a : b; }

inline constexpr u32 kItemCausal = 1, kItemPositions = 2; // AttentionItem::flags

struct Mask {
  KeyRange keys;    // of the work item
  i32 key_position; // global position of key 0
  i32 window_left;  // keys before a query's own that it sees; negative: all
  bool causal;

  ROCADE_DEVICE Mask(const Args& args, const Item& item)
      : keys{item.kv_begin, item.kv_end}, key_position(item.kv_position), window_left(args.window_left),
        causal((item.flags & kItemCausal) != 0) {}

  /// Keys that a query at a global position sees.
  ROCADE_DEVICE KeyRange visible(i32 position) const {
    const i64 own = static_cast<i64>(position) - key_position; // the key at the query's own position
    KeyRange seen = keys;
    if (causal)
      seen.end = limit(own + 1);
    if (window_left >= 0)
      seen.begin = limit(own - window_left);
    return seen;
  }

  /// Keys that any, and that every, query from one position to another sees.
  ROCADE_DEVICE KeyRange any(i32 first, i32 last) const { return {visible(first).begin, visible(last).end}; }
  ROCADE_DEVICE KeyRange every(i32 first, i32 last) const {
    return {visible(last).begin, visible(first).end};
  }

private:
  ROCADE_DEVICE i32 limit(i64 key) const {
    return key < keys.begin ? keys.begin : key > keys.end ? keys.end : static_cast<i32>(key);
  }
};

} // namespace rocade

// Query rows of a work item: tokens and the heads of a group, packed, and where they lie in memory.
#pragma once
#include "attention/mask.hpp"

namespace rocade {

/// Packed row r of a request is token r / group, head r % group of the group. All heads of a group share
/// keys.
struct Rows {
  const Args& args;
  const Item& item;
  u32 first, end; // packed rows of the tile

  ROCADE_DEVICE Rows(const Args& a, const Item& i, int tile_rows)
      : args(a), item(i), first(static_cast<u32>(i.row_begin)) {
    const u32 all = static_cast<u32>(i.q_len) * a.group;
    end = all < first + static_cast<u32>(tile_rows) ? all : first + static_cast<u32>(tile_rows);
  }

  ROCADE_DEVICE bool holds(u32 row) const { return row < end; }
  /// The row itself, or the last one: what is computed for rows past the end is not stored.
  ROCADE_DEVICE u32 within(u32 row) const { return row < end ? row : end - 1; }

  ROCADE_DEVICE i32 token(u32 row) const { return static_cast<i32>(row / args.group); }
  ROCADE_DEVICE i64 query(u32 row) const { return i64{item.q_begin} + token(row); }
  ROCADE_DEVICE i64 head(u32 row) const { return i64{item.kv_head} * args.group + row % args.group; }
  /// Global position of a row's token.
  ROCADE_DEVICE i32 position(u32 row) const {
    if (args.positions != nullptr)
      return static_cast<const i32*>(args.positions)[query(row)];
    return item.q_position + token(row);
  }
};

} // namespace rocade

// Query rows of a work item: tokens and the heads of a group, packed, and where they lie in memory.
#pragma once
#include "attention/mask.hpp"
#include "division.hpp"

namespace rocade {

/// Row r of the tile is token (first_row + r) / group, head (first_row + r) % group: all heads of a group
/// share keys.
struct Rows {
  const Args& args;
  const Item& item;

  ROCADE_DEVICE bool holds(u32 row) const { return row < item.rows; }
  /// The row itself, or the last one: what is computed for rows past the end is not stored.
  ROCADE_DEVICE u32 within(u32 row) const { return row < item.rows ? row : item.rows - 1; }

  /// Token of a row, counted from the tile's first one.
  ROCADE_DEVICE u32 token(u32 row) const { return divide(item.first_row + row, args.group_magic); }
  ROCADE_DEVICE u32 head(u32 row) const {
    return static_cast<u32>(item.kv_head) * args.group + item.first_row + row - token(row) * args.group;
  }
  /// Global position of a row's token.
  ROCADE_DEVICE i32 position(u32 row) const {
    const i32 at = static_cast<i32>(token(row));
    return args.positions != nullptr ? static_cast<const i32*>(args.positions)[item.q_begin + at]
                                     : item.q_position + at;
  }
  /// Place of a row in a tensor with these strides, in elements.
  ROCADE_DEVICE u64 place(u32 row, i64 token_step, i64 head_step) const {
    return static_cast<u64>(item.q_begin * token_step) + scaled(token(row), token_step) +
           scaled(head(row), head_step);
  }
};

} // namespace rocade

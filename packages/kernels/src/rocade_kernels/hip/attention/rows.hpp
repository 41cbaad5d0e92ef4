// Query rows of a work item: tokens and the heads of a group, packed, and where they lie in memory.
#pragma once
#include "attention/mask.hpp"
#include "division.hpp"

namespace rocade {

/// Row r of a tile is token (row_begin + r) / group, head (row_begin + r) % group: the heads of a group share
/// keys.
struct Rows {
  const Args& args;
  const Item& item;
  const u32 kv_head, count;

  /// `most`: rows of a tile of this kernel.
  ROCADE_DEVICE Rows(const Args& a, const Item& i, u32 head, u32 most)
      : args(a), item(i), kv_head(head), count(smaller(all(a, i), most)) {}

  ROCADE_DEVICE bool holds(u32 row) const { return row < count; }
  /// The row itself, or the last one: what is computed for rows past the end is not stored.
  ROCADE_DEVICE u32 within(u32 row) const { return smaller(row, count - 1); }

  /// Token of a row, counted from the tile's first one.
  ROCADE_DEVICE u32 token(u32 row) const { return divide(packed(row), args.group_magic); }
  /// Place of a row among those of its tile, from the first head of the first token on.
  ROCADE_DEVICE u32 packed(u32 row) const { return static_cast<u32>(item.row_begin) + row; }
  ROCADE_DEVICE u32 head(u32 row) const {
    return kv_head * args.group + packed(row) - token(row) * args.group;
  }
  /// Global position of a row's token.
  ROCADE_DEVICE i32 position(u32 row) const {
    const i32 at = static_cast<i32>(token(row));
    return listed() ? static_cast<const i32*>(args.positions)[item.q_begin + at] : item.q_position + at;
  }
  /// Whether positions are given token by token.
  ROCADE_DEVICE bool listed() const { return (item.flags & kItemPositions) != 0; }
  /// Place of a row in a tensor with these strides, in elements.
  ROCADE_DEVICE u64 place(u32 row, i64 token_step, i64 head_step) const {
    return static_cast<u64>(item.q_begin * token_step) + scaled(token(row), token_step) +
           scaled(head(row), head_step);
  }

private:
  static ROCADE_DEVICE u32 all(const Args& args, const Item& item) {
    return static_cast<u32>(item.q_len) * args.group - static_cast<u32>(item.row_begin);
  }
};

} // namespace rocade

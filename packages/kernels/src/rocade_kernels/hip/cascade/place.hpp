// Where a thread of a cascade kernel works: lanes of a wave take neighbouring packs of 16 bytes.
//
// A result row has `columns` packs: those of head 0, then those of head 1, and so on. A block takes `width`
// columns of `side_rows` rows side by side, `deep_rows` times one below the other. The lse of a head is
// loaded by one lane, its leader, and handed to the others by a shuffle.
#pragma once
#include "arch/types.hpp"
#include "division.hpp"

namespace rocade {

constexpr int kThreads = 256;

struct Place {
  i64 block_row; // first row of the block's tile, the same for all its threads
  u32 side_row;  // below it
  u32 head;
  u32 pack;    // within the head
  u32 leader;  // lane that loads what the lanes of this head and row share: their first one in this wave
  bool inside; // threads that are not have nothing to do

  /// Whether this lane loads what its head and row share; `handed_on` is what its leader has loaded.
  ROCADE_DEVICE bool loads_shared() const { return !kHandOn || leader == lane_id(); }
  template <class T> ROCADE_DEVICE T handed_on(T x) const { return kHandOn ? shuffle(x, leader) : x; }

  /// The first of the thread's deep_rows rows, each side_rows below the one before. It may not exist.
  ROCADE_DEVICE i64 row() const { return block_row + side_row; }

  /// Address of the thread's head in that row. What is the same for the whole block is added first.
  template <class T> ROCADE_DEVICE T* at(T* base, i64 row_stride, i64 head_stride) const {
    return base + block_row * row_stride + side_row * static_cast<u64>(row_stride) +
           head * static_cast<u64>(head_stride);
  }
};

/// The place of a thread that is number `thread` of those that share the block's tile.
template <class Args> ROCADE_DEVICE Place place_of(const Args& args, u32 thread) {
  const u32 side_row = divide(thread, args.width_magic);
  const u32 offset = thread - side_row * args.width; // in the tile's row
  const u32 column = block_y() * args.width + offset;
  const u32 head = divide(column, args.packs_magic);
  const u32 pack = column - head * args.packs;
  const u32 lane = lane_id();
  u32 back = pack < lane ? pack : lane;
  back = offset < back ? offset : back;
  const bool inside = side_row < args.side_rows && column < args.columns;
  return {i64{block_x()} * (args.side_rows * args.deep_rows), side_row, head, pack, lane - back, inside};
}

/// Whether all rows of this block's tile exist.
template <class Args> ROCADE_DEVICE bool is_whole(const Args& args) {
  return (i64{block_x()} + 1) * (args.side_rows * args.deep_rows) <= args.rows;
}

} // namespace rocade

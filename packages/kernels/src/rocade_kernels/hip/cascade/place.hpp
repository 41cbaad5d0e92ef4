// Where a thread of a cascade kernel works: lanes of a wave take neighbouring packs of 16 bytes.
//
// A result row has `columns` packs: those of head 0, then those of head 1, and so on. A block takes `width`
// columns of `side_rows` rows; blocks with consecutive numbers go through the columns first, so that memory
// is read in order. The lse of a head is needed by all its lanes: see kHandOn.
#pragma once
#include "arch/types.hpp"
#include "division.hpp"

namespace rocade {

/// What is known of all tensors of a launch; the numbers are those of hip_launch.py. Dense: a row's heads
/// follow each other without gaps. Dense and aligned: packs lie at multiples of their size.
enum class Form : u32 { unaligned, aligned, dense };

struct Place {
  i64 block_row; // first row of the block, the same for all its threads
  u32 side_row;  // below it
  u32 column;    // pack within the row
  u32 head;
  u32 pack;    // within the head
  u32 leader;  // lane that loads what the lanes of this head and row share: their first one in this wave
  bool inside; // threads that are not have nothing to do

  /// Whether this lane loads what its head and row share; `handed_on` is what its leader has loaded.
  ROCADE_DEVICE bool loads_shared() const { return !kHandOn || leader == lane_id(); }
  template <class T> ROCADE_DEVICE T handed_on(T x) const { return kHandOn ? shuffle(x, leader) : x; }

  ROCADE_DEVICE i64 row() const { return block_row + side_row; }

  /// Address of the thread's pack of `elements` elements, or of its head's lse (0 elements), in its row. What
  /// is the same for the whole block is added first.
  template <Form kForm, class T>
  ROCADE_DEVICE T* at(T* base, i64 row_stride, i64 head_stride, u32 elements) const {
    T* const row = base + block_row * row_stride + side_row * static_cast<u64>(row_stride);
    if constexpr (kForm == Form::dense)
      return row + (elements == 0 ? head : column * elements);
    else
      return row + head * static_cast<u64>(head_stride) + pack * elements;
  }
};

/// The place of a thread that is number `thread` of those that share the block's rows.
template <class Args> ROCADE_DEVICE Place place_of(const Args& args, u32 thread) {
  const u32 line = divide(block_x(), args.blocks_magic);
  const u32 side_row = divide(thread, args.width_magic);
  const u32 offset = thread - side_row * args.width; // in the block's row
  const u32 column = (block_x() - line * args.blocks) * args.width + offset;
  const u32 head = divide(column, args.packs_magic);
  const u32 pack = column - head * args.packs;
  const u32 lane = lane_id();
  u32 back = pack < lane ? pack : lane;
  back = offset < back ? offset : back;
  const i64 block_row = i64{line} * args.side_rows;
  const bool inside = side_row < args.side_rows && column < args.columns && block_row + side_row < args.rows;
  return {block_row, side_row, column, head, pack, lane - back, inside};
}

} // namespace rocade

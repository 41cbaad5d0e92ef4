// Where a thread of a cascade kernel works: threads of a wave take neighbouring packs of 16 bytes.
//
// A result row has `columns` packs: those of head 0, then those of head 1, and so on. The lse of a head is
// loaded by one lane, its leader, and handed to the others by a shuffle.
#pragma once
#include "arch/types.hpp"
#include "division.hpp"

namespace rocade {

struct Place {
  i64 row; // of the result, or a group of rows; may lie behind the last
  u32 head;
  u32 pack;   // within the head
  u32 leader; // lane that loads what the lanes of this head share: the head's first one in this wave

  ROCADE_DEVICE bool leads() const { return leader == lane_id(); }
};

/// The place of pack number `index`; lanes of a wave have consecutive numbers.
template <class Args> ROCADE_DEVICE Place place_of(const Args& args, u64 index) {
  const u64 row = divide(index, args.columns_magic);
  const u32 column = static_cast<u32>(index) - static_cast<u32>(row) * args.columns;
  const u32 head = divide(column, args.packs_magic);
  const u32 pack = column - head * args.packs;
  const u32 lane = lane_id();
  return {static_cast<i64>(row), head, pack, pack < lane ? lane - pack : 0};
}

} // namespace rocade

// Writes the keys (blocks with y = 0) or values (y = 1) of new tokens into a paged cache. It only copies
// bytes.
//
// All threads start to load tokens, then one thread for each token of the block looks up where that goes, and
// then all threads store: neither waits for the other.
#include "arch/types.hpp"
#include "args.hpp"
#include "division.hpp"

namespace rocade {

constexpr u32 kThreads = 256;
constexpr u32 kBatch = 4;    // units that a thread loads before it stores the first
constexpr i64 kNowhere = -1; // place of a token that is skipped

// Keys or values: where they are and go. Strides in bytes.
struct Side {
  const u8* tokens;
  i64 row, head;
  u8* cache;
  i64 cache_page, cache_slot, cache_head;
  u32 columns, columns_magic, units, units_magic;
};

ROCADE_DEVICE Side side_of(const AppendPagedKvCacheArgs& args) {
  if (block_y() == 0)
    return {static_cast<const u8*>(args.key),
            args.key_row,
            args.key_head,
            static_cast<u8*>(args.key_cache),
            args.key_cache_page,
            args.key_cache_slot,
            args.key_cache_head,
            args.key_columns,
            args.key_columns_magic,
            args.key_units,
            args.key_units_magic};
  return {static_cast<const u8*>(args.value),
          args.value_row,
          args.value_head,
          static_cast<u8*>(args.value_cache),
          args.value_cache_page,
          args.value_cache_slot,
          args.value_cache_head,
          args.value_columns,
          args.value_columns_magic,
          args.value_units,
          args.value_units_magic};
}

// Byte of the cache at which a token's first head begins, or kNowhere: nothing outside the tables is read,
// and nothing outside the pool is written, whatever the arrays hold.
ROCADE_DEVICE i64 place_of_token(const AppendPagedKvCacheArgs& args, const Side& side, i64 token) {
  const i32 request = static_cast<const i32*>(args.batch_indices)[token];
  const i32 position = static_cast<const i32*>(args.positions)[token];
  // `|`, so that both loads start together.
  if ((static_cast<u32>(request) >= args.batch) | (position < 0))
    return kNowhere;
  const i32* indptr = static_cast<const i32*>(args.indptr) + request;
  const i64 first = indptr[0], last = indptr[1];
  const u32 page_of_request = static_cast<u32>(position) / args.page_size;
  const u32 slot = static_cast<u32>(position) - page_of_request * args.page_size;
  const i64 entry = first + page_of_request;
  if ((first < 0) | (entry >= last) | (entry >= args.num_indices))
    return kNowhere;
  const i32 page = static_cast<const i32*>(args.indices)[entry];
  if (static_cast<u32>(page) >= args.pool) // a negative one, too
    return kNowhere;
  return i64{page} * side.cache_page + slot * side.cache_slot;
}

// A thread's share of a block's tokens: kBatch units of type Unit, one kThreads units behind the other.
// kWhole: all of them exist. kDense: heads follow each other without gaps, in tokens and in a slot of the
// cache.
template <class Unit, bool kDense> struct Batch {
  Unit units[kBatch];
  u32 token[kBatch];  // of the block; a number that no token has where there is no unit
  i64 offset[kBatch]; // in a slot of the cache

  template <bool kWhole> ROCADE_DEVICE void load(const Side& side, i64 first, u32 begin, u32 count) {
    const u8* const tokens = side.tokens + first * side.row;
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) {
      const u32 index = begin + k * kThreads;
      token[k] = kThreads;
      if (!kWhole && index >= count)
        continue;
      token[k] = divide(index, side.columns_magic);
      const u32 column = index - token[k] * side.columns;
      const u8* from = tokens + token[k] * static_cast<u64>(side.row);
      if constexpr (kDense) {
        offset[k] = column * static_cast<u32>(sizeof(Unit));
        from += offset[k];
      } else {
        const u32 head = divide(column, side.units_magic);
        const u64 byte = u64{column - head * side.units} * sizeof(Unit);
        offset[k] = static_cast<i64>(head * static_cast<u64>(side.cache_head) + byte);
        from += head * static_cast<u64>(side.head) + byte;
      }
      units[k] = load_streaming(reinterpret_cast<const Unit*>(from));
    }
  }

  template <bool kWhole> ROCADE_DEVICE void store(const Side& side, const i64* places) const {
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) {
      const i64 place = kWhole || token[k] < kThreads ? places[token[k]] : kNowhere;
      if (place != kNowhere)
        *reinterpret_cast<Unit*>(side.cache + place + offset[k]) = units[k];
    }
  }
};

// Copies the tokens of a block in units of type Unit.
template <class Unit, bool kDense, bool kWhole>
ROCADE_DEVICE void copy_tokens(const AppendPagedKvCacheArgs& args, const Side& side, i64* places) {
  const i64 first = i64{block_x()} * args.rows_a_block, left = args.rows - first;
  const u32 tokens = left < args.rows_a_block ? static_cast<u32>(left) : args.rows_a_block;
  const u32 count = tokens * side.columns;
  Batch<Unit, kDense> batch;
  batch.template load<kWhole>(side, first, thread_id(), count);
  if (thread_id() < tokens)
    places[thread_id()] = place_of_token(args, side, first + thread_id());
  barrier();
  batch.template store<kWhole>(side, places);
#pragma unroll 1
  for (u32 begin = thread_id() + kBatch * kThreads; begin < count; begin += kBatch * kThreads) {
    batch.template load<kWhole>(side, first, begin, count);
    batch.template store<kWhole>(side, places);
  }
}

// Whether every thread has a whole number of batches, and heads have no gaps: so it is for models' shapes.
ROCADE_DEVICE bool is_plain(const AppendPagedKvCacheArgs& args, const Side& side) {
  const i64 head_bytes = i64{side.units} * args.unit;
  return args.unit == 16 && side.head == head_bytes && side.cache_head == head_bytes &&
         args.rows_a_block * side.columns % (kBatch * kThreads) == 0 &&
         (i64{block_x()} + 1) * args.rows_a_block <= args.rows;
}

} // namespace rocade

ROCADE_KERNEL(rocade::kThreads, 5)
rocade_append_paged_kv_cache(ROCADE_ARGUMENT rocade::AppendPagedKvCacheArgs args) {
  using namespace rocade;
  ROCADE_SHARED static i64 places[kThreads];
  const Side side = side_of(args);
  if (is_plain(args, side)) [[likely]]
    return copy_tokens<Words4, true, true>(args, side, places);
  switch (args.unit) {
  case 16:
    return copy_tokens<Words4, false, false>(args, side, places);
  case 8:
    return copy_tokens<u64, false, false>(args, side, places);
  case 4:
    return copy_tokens<u32, false, false>(args, side, places);
  case 2:
    return copy_tokens<u16, false, false>(args, side, places);
  default:
    return copy_tokens<u8, false, false>(args, side, places);
  }
}

// Writes the keys (blocks with y = 0) or values (y = 1) of new tokens into a paged cache. It only copies
// bytes.
//
// All threads start to load tokens, then one thread for each token of the block looks up where that goes, and
// then all threads store: neither waits for the other. The plain variant is for tokens without gaps that go
// to slots without gaps, keys and values alike; its units are numbered through. The variant strided takes
// everything else.
#include "arch/types.hpp"
#include "args.hpp"
#include "division.hpp"

namespace rocade {

constexpr u32 kBatch = 4;              // units that a thread loads before it stores the first
constexpr i64 kNowhere = i64{1} << 63; // place of a token that is skipped

// Page and slot of a token in the cache; a page of -1 if the token is skipped.
struct Slot {
  i32 page;
  u32 slot;
};

// Nothing outside the tables is read, and no place outside the pool is returned, whatever the arrays hold.
template <class Args> ROCADE_DEVICE Slot slot_of_token(const Args& args, u64 token) {
  constexpr Slot kNone{-1, 0};
  const i32 request = static_cast<const i32*>(args.batch_indices)[token];
  const i32 position = static_cast<const i32*>(args.positions)[token];
  // `|`, so that both loads start together.
  if ((static_cast<u32>(request) >= args.batch) | (position < 0))
    return kNone;
  const i32* indptr = static_cast<const i32*>(args.indptr) + request;
  const i64 first = indptr[0], last = indptr[1];
  const u32 page_of_request = divide(static_cast<u32>(position), args.page_magic);
  const u32 slot = static_cast<u32>(position) - page_of_request * args.page_size;
  const i64 entry = first + page_of_request;
  if ((first < 0) | (entry >= last) | (entry >= args.num_indices))
    return kNone;
  const i32 page = static_cast<const i32*>(args.indices)[entry];
  if (static_cast<u32>(page) >= args.pool) // a negative one, too
    return kNone;
  return {page, slot};
}

#if ROCADE_VARIANT_STRIDED

constexpr u32 kThreads = 256;

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

// Byte of the cache at which a token's first head begins, or kNowhere.
ROCADE_DEVICE i64 place_of_token(const AppendPagedKvCacheArgs& args, const Side& side, i64 token) {
  const Slot found = slot_of_token(args, static_cast<u64>(token));
  return found.page < 0 ? kNowhere : i64{found.page} * side.cache_page + found.slot * side.cache_slot;
}

// A thread's share of a block's tokens: kBatch units of type Unit, one kThreads units behind the other.
template <class Unit> struct Batch {
  Unit units[kBatch];
  u32 token[kBatch];  // of the block; a number that no token has where there is no unit
  i64 offset[kBatch]; // in a slot of the cache

  ROCADE_DEVICE void load(const Side& side, i64 first, u32 begin, u32 count) {
    const u8* const tokens = side.tokens + first * side.row;
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) {
      const u32 index = begin + k * kThreads;
      token[k] = kThreads;
      if (index >= count)
        continue;
      token[k] = divide(index, side.columns_magic);
      const u32 column = index - token[k] * side.columns;
      const u32 head = divide(column, side.units_magic);
      const u64 byte = u64{column - head * side.units} * sizeof(Unit);
      offset[k] = static_cast<i64>(head * static_cast<u64>(side.cache_head) + byte);
      const u8* const from =
          tokens + token[k] * static_cast<u64>(side.row) + head * static_cast<u64>(side.head) + byte;
      units[k] = load_streaming(reinterpret_cast<const Unit*>(from));
    }
  }

  ROCADE_DEVICE void store(const Side& side, const i64* places) const {
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) {
      const i64 place = token[k] < kThreads ? places[token[k]] : kNowhere;
      if (place != kNowhere)
        *reinterpret_cast<Unit*>(side.cache + place + offset[k]) = units[k];
    }
  }
};

// Copies the tokens of a block in units of type Unit.
template <class Unit>
ROCADE_DEVICE void copy_tokens(const AppendPagedKvCacheArgs& args, const Side& side, i64* places) {
  const i64 first = i64{block_x()} * args.rows_a_block, left = args.rows - first;
  const u32 tokens = left < args.rows_a_block ? static_cast<u32>(left) : args.rows_a_block;
  const u32 count = tokens * side.columns;
  Batch<Unit> batch;
  batch.load(side, first, thread_id(), count);
  if (thread_id() < tokens)
    places[thread_id()] = place_of_token(args, side, first + thread_id());
  barrier();
  batch.store(side, places);
#pragma unroll 1
  for (u32 begin = thread_id() + kBatch * kThreads; begin < count; begin += kBatch * kThreads) {
    batch.load(side, first, begin, count);
    batch.store(side, places);
  }
}

#else

constexpr u32 kThreads = 128;
constexpr u32 kUnits = kThreads * kBatch; // of a block
// Tokens that a block may have units of: a token has kLeastColumns of them or more, so there are not more
// tokens than threads to look them up.
constexpr u32 kLeastColumns = 8, kTokens = kUnits / kLeastColumns + 2;
static_assert(kTokens <= kThreads);

ROCADE_DEVICE void append_dense(const AppendPagedKvCacheDenseArgs& args, i64* places) {
  const bool keys = block_y() == 0;
  const u32 begin = block_x() * kUnits, unit = begin + thread_id(), left = args.total - begin;
  const u32 count = left < kUnits ? left : kUnits, first = divide(begin, args.columns_magic);
  const Words4* const from = static_cast<const Words4*>(keys ? args.key : args.value) + unit;
  Words4 units[kBatch];
#pragma unroll
  for (u32 k = 0; k < kBatch; ++k)
    if (thread_id() + k * kThreads < count)
      units[k] = load_streaming(from + k * kThreads);
  if (const u32 token = first + thread_id(), start = token * args.columns; start < begin + count) {
    const Slot found = slot_of_token(args, token);
    // Where unit 0 would go if all came before this token's: a unit is then found by its number alone.
    const i64 place = found.page * args.page_units + static_cast<i64>(u64{found.slot} * args.columns) - start;
    places[thread_id()] = found.page < 0 ? kNowhere : place;
  }
  barrier();
  Words4* const to = static_cast<Words4*>(keys ? args.key_cache : args.value_cache) + unit;
#pragma unroll
  for (u32 k = 0; k < kBatch; ++k) {
    if (thread_id() + k * kThreads >= count)
      continue;
    const i64 place = places[divide(unit + k * kThreads, args.columns_magic) - first];
    if (place != kNowhere)
      to[place + k * kThreads] = units[k];
  }
}

#endif

} // namespace rocade

#if ROCADE_VARIANT_STRIDED
ROCADE_KERNEL(rocade::kThreads, 5)
rocade_append_paged_kv_cache(ROCADE_ARGUMENT rocade::AppendPagedKvCacheArgs args) {
  using namespace rocade;
  ROCADE_SHARED static i64 places[kThreads];
  const Side side = side_of(args);
  switch (args.unit) {
  case 16:
    return copy_tokens<Words4>(args, side, places);
  case 8:
    return copy_tokens<u64>(args, side, places);
  case 4:
    return copy_tokens<u32>(args, side, places);
  case 2:
    return copy_tokens<u16>(args, side, places);
  default:
    return copy_tokens<u8>(args, side, places);
  }
}
#else
ROCADE_KERNEL(rocade::kThreads, 16)
rocade_append_paged_kv_cache(ROCADE_ARGUMENT rocade::AppendPagedKvCacheDenseArgs args) {
  using namespace rocade;
  ROCADE_SHARED static i64 places[kTokens];
  append_dense(args, places);
}
#endif

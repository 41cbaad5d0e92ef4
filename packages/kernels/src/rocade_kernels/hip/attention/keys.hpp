// Keys and values in memory, dense or paged, and their copies to LDS tile by tile.
//
// Tables hold where the rows of a tile lie, so that copies do not depend on the layout. Copies run one tile
// ahead. Rows past the last key are those of the last key: they are masked, and what is read exists.
#pragma once
#include "attention/mask.hpp"
#include "division.hpp"
#include "tiles/shared.hpp"

namespace rocade {

inline constexpr int kKeyBytes = 2; // of an element

/// Addresses of a key and its value, of one head.
struct Places {
  u64 key, value;
};

/// Where the keys of one head of a request lie, as the arguments say.
struct KeySource {
  const Args& args;
  const Item& item;
  u32 kv_head;
};

/// The same, worked out. Strides are in bytes here.
struct KeyPlaces {
  u64 k, v; // the head's first element in page 0, or of key 0
  i64 k_row, v_row, k_page, v_page;
  const i32* pages; // of the request; null when dense
  u32 page_size, page_magic, num_pages;

  ROCADE_DEVICE explicit KeyPlaces(const KeySource& from)
      : KeyPlaces(from.args, from.item, from.kv_head, kKeyBytes) {}
  ROCADE_DEVICE KeyPlaces(const Args& args, const Item& item, u32 kv_head, int element_bytes)
      : k_row(args.k_row * element_bytes), v_row(args.v_row * element_bytes),
        k_page(args.k_page * element_bytes), v_page(args.v_page * element_bytes), pages(nullptr),
        page_size(args.page_size), page_magic(args.page_magic), num_pages(args.num_pages) {
    k = reinterpret_cast<u64>(args.k) + static_cast<u64>(kv_head * args.k_head * element_bytes);
    v = reinterpret_cast<u64>(args.v) + static_cast<u64>(kv_head * args.v_head * element_bytes);
    if (args.pages != nullptr) {
      pages = static_cast<const i32*>(args.pages) + item.kv_base;
    } else {
      k += static_cast<u64>(item.kv_base * k_row);
      v += static_cast<u64>(item.kv_base * v_row);
    }
  }

  /// Page of a key. A page outside the pool becomes page 0, so that nothing outside is read.
  ROCADE_DEVICE u32 page(i32 key) const {
    const u32 index = static_cast<u32>(pages[divide(static_cast<u32>(key), page_magic)]);
    return index < num_pages ? index : 0;
  }

  /// Where a key of a page lies; the page is 0 when dense.
  ROCADE_DEVICE Places at(i32 key, u32 page) const {
    u32 slot = static_cast<u32>(key);
    if (pages != nullptr)
      slot -= divide(slot, page_magic) * page_size;
    return {k + scaled(page, k_page) + scaled(slot, k_row), v + scaled(page, v_page) + scaled(slot, v_row)};
  }
};

template <bool kKept> struct PlacesOrSource {
  using type = KeyPlaces;
};
template <> struct PlacesOrSource<false> {
  using type = KeySource;
};
/// What tables keep of it: everything where it lies in scalar registers, else nothing that can be had again.
using KeptPlaces = typename PlacesOrSource<kWave == 64>::type;

/// Rows of tiles in LDS: each entry is worked out by one thread of the block, two tiles ahead, from a page
/// fetched three tiles ahead. There are two tables of kBytes / 2.
template <int kKeys, int kThreads> struct LdsTable {
  static constexpr int kEntry = sizeof(Places), kBytes = 2 * kKeys * kEntry;
  static constexpr int kOwn = (kKeys + kThreads - 1) / kThreads; // entries of one thread in a table
  static constexpr int kAtOnce = 4;                              // rows to look up together

  const KeptPlaces kept;
  const i32 end;
  const LdsBytes tables;
  u32 page[kOwn] = {}; // of this thread's entries in the table to come

  ROCADE_DEVICE LdsTable(const KeySource& from, i32 keys_end, LdsBytes lds)
      : kept(from), end(keys_end), tables(lds) {}

  /// Makes ready for the copies of the first tile.
  ROCADE_DEVICE void begin(i32 first) {
    fetch(first);
    write(first, 0);
    fetch(first + kKeys);
    barrier();
  }

  /// In front of the copies of a tile.
  ROCADE_DEVICE void open(i32) {}

  /// Where a row of the opened tile lies.
  ROCADE_DEVICE Places row(int parity, u32 own_row, int step) const {
    return read_lds<Places>(tables + parity * (kBytes / 2) + own_row * kEntry + step * kEntry);
  }

  /// Behind the copies of a tile: makes ready for the next one, behind the next barrier.
  ROCADE_DEVICE void advance(i32 tile, int parity) {
    write(tile + kKeys, 1 - parity);
    fetch(tile + 2 * kKeys);
  }

private:
  ROCADE_DEVICE int entry(int k) const { return static_cast<int>(thread_id()) + k * kThreads; }
  ROCADE_DEVICE i32 key(i32 tile, int k) const { return smaller(tile + entry(k), end - 1); }

  ROCADE_DEVICE void fetch(i32 tile) {
    const KeyPlaces places(kept);
    if (places.pages == nullptr || tile >= end)
      return;
    ROCADE_FOR (k, kOwn)
      if (entry(k) < kKeys)
        page[k] = places.page(key(tile, k));
  }
  ROCADE_DEVICE void write(i32 tile, int parity) const {
    if (tile >= end)
      return;
    const KeyPlaces places(kept);
    ROCADE_FOR (k, kOwn)
      if (entry(k) < kKeys)
        write_lds(tables + parity * (kBytes / 2) + entry(k) * kEntry, places.at(key(tile, k), page[k]));
  }
};

/// Rows of tiles in the lanes of each wave, for GPUs whose LDS is full: lane L knows row L, and copies read
/// lanes. All lanes of a copy fill the same row.
template <int kKeys, int kThreads> struct LaneTable {
  static constexpr int kBytes = 0, kAtOnce = 1;
  static_assert(kKeys <= kWave);

  const KeyPlaces places;
  const i32 end;
  u32 page = 0; // of this lane's row in the tile to come
  Places own;

  ROCADE_DEVICE LaneTable(const KeySource& from, i32 keys_end, LdsBytes) : places(from), end(keys_end) {}

  ROCADE_DEVICE void begin(i32 first) { fetch(first); }
  ROCADE_DEVICE void open(i32 tile) { own = places.at(key(tile), page); }
  ROCADE_DEVICE Places row(int, u32 own_row, int step) {
    // One row after the other, worked out here: all at once they would take too many scalar registers.
    keep_order(own.key);
    keep_order(own.value);
    const i32 from = opaque_uniform(static_cast<i32>(own_row)) + step;
    return {from_lane(own.key, from), from_lane(own.value, from)};
  }
  ROCADE_DEVICE void advance(i32 tile, int) { fetch(tile + kKeys); }

private:
  ROCADE_DEVICE i32 key(i32 tile) const { return smaller(tile + lane(), end - 1); }
  ROCADE_DEVICE void fetch(i32 tile) {
    if (places.pages != nullptr && tile < end)
      page = places.page(key(tile));
  }
};

template <int kKeys, int kThreads, bool kInLds> struct TableOf {
  using type = LdsTable<kKeys, kThreads>;
};
template <int kKeys, int kThreads> struct TableOf<kKeys, kThreads, false> {
  using type = LaneTable<kKeys, kThreads>;
};

/// Copies tiles of keys and values of a block to LDS, this lane's share: into kStages pairs of tiles in turn.
template <class KeyTile, class ValueTile, class Table, int kStages> struct KeyCopies {
  static constexpr int kCopies = KeyTile::kCopies, kKeys = KeyTile::kRows;
  static constexpr int kAhead = (kStages - 1) * kKeys, kPairBytes = KeyTile::kBytes + ValueTile::kBytes;
  static_assert(ValueTile::kCopies == kCopies && ValueTile::kRowBytes == KeyTile::kRowBytes);

  Table table;
  const i32 end; // of the keys
  const u32 wave;
  const u32 bytes; // of a row that are there: head_dim may be below kDim
  int parity = 0;  // of the next tile to be copied
  int used = 0;    // pair of the tile in use

  ROCADE_DEVICE KeyCopies(const Table& rows, u32 this_wave, u32 row_bytes)
      : table(rows), end(rows.end), wave(this_wave), bytes(row_bytes) {}

  /// Starts the copies of the first tiles.
  ROCADE_DEVICE void begin(i32 first, LdsBytes lds) {
    if (first < end)
      table.begin(first);
    ROCADE_FOR (k, kStages - 1) {
      if (first + k * kKeys < end) {
        if (k > 0)
          barrier(); // the table of this tile was written with the copies of the one before
        start(first + k * kKeys, lds + k * kPairBytes);
      }
    }
  }

  /// Waits for a tile, the next one in order, and frees the one before. Returns where the tile lies.
  ROCADE_DEVICE LdsBytes wait(i32 tile, LdsBytes lds) {
    if (tile + kAhead - kKeys < end)
      copies_done<kStages - 2, 2 * kCopies>();
    else
      copies_done<0, 0>();
    barrier();
    return lds + used * kPairBytes;
  }

  /// After `wait`: starts the copies of the tile that takes the place of the freed one.
  ROCADE_DEVICE void refill(i32 tile, LdsBytes lds) {
    if (tile + kAhead < end)
      start(tile + kAhead, lds + (used == 0 ? kStages - 1 : used - 1) * kPairBytes);
    used = used + 1 == kStages ? 0 : used + 1;
  }

private:
  // Starts the copies of a tile; `lds` is the place of its keys, then its values.
  ROCADE_DEVICE void start(i32 tile, LdsBytes lds) {
    const LdsBytes to = lds + wave * KeyTile::kWaveBytes;
    table.open(tile);
    each<(kCopies + kAtOnce - 1) / kAtOnce>([&]<int first>()
                                                ROCADE_INLINED { start_some<first * kAtOnce>(to); });
    end_copies();
    table.advance(tile, parity);
    parity = 1 - parity;
  }

  static constexpr int kAtOnce = Table::kAtOnce;

  template <int kFirst> ROCADE_DEVICE void start_some(LdsBytes to) {
    constexpr int kCount = at_most(kCopies - kFirst, kAtOnce);
    Places rows[kCount];
    ROCADE_FOR (k, kCount)
      rows[k] = table.row(parity, KeyTile::copy_row(wave), KeyTile::copy_step(kFirst + k));
    each<kCount>([&]<int k>() ROCADE_INLINED { start_copy<kFirst + k>(rows[k], to); });
  }

  // Columns beyond head_dim get the row's first elements: queries are 0 there, and such outputs are not
  // stored.
  ROCADE_DEVICE u32 within(u32 byte) const { return byte < bytes ? byte : byte % kChunk; }

  template <int c> ROCADE_DEVICE void start_copy(const Places& row, LdsBytes to) const {
    copy_to_lds<c * KeyTile::kAllBytes>(to, reinterpret_cast<const char*>(row.key) +
                                                within(KeyTile::copy_byte(wave, c)));
    copy_to_lds<KeyTile::kBytes + c * ValueTile::kAllBytes>(to, reinterpret_cast<const char*>(row.value) +
                                                                    within(ValueTile::copy_byte(wave, c)));
  }
};

} // namespace rocade

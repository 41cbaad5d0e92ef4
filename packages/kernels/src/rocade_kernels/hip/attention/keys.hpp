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

/// What dense keys say is the size of their one page.
inline constexpr u32 kDensePage = 1u << 31;

/// Where keys, or values, lie: bytes from one address on.
struct Strides {
  u64 base; // the head's first element in page 0
  i64 row, page;

  ROCADE_DEVICE u64 place(u32 in_page, u32 slot) const {
    return base + scaled(in_page, page) + scaled(slot, row);
  }
};

/// The same as the source, worked out. Dense keys are those of one huge page.
struct KeyPlaces {
  u64 k, v; // the head's first element in page 0
  i64 k_row, v_row, k_page, v_page;
  const i32* pages; // of the request; of dense ones, the number 0
  u32 page_size, page_magic, num_pages;

  ROCADE_DEVICE explicit KeyPlaces(const KeySource& from)
      : KeyPlaces(from.args, from.item, from.kv_head, kKeyBytes) {}
  ROCADE_DEVICE KeyPlaces(const Args& args, const Item& item, u32 kv_head, int element_bytes)
      : k_row(args.k_row * element_bytes), v_row(args.v_row * element_bytes),
        k_page(args.k_page * element_bytes), v_page(args.v_page * element_bytes), pages(nullptr),
        page_size(args.page_size), page_magic(args.page_magic), num_pages(args.num_pages) {
    k = reinterpret_cast<u64>(args.k) + static_cast<u64>(kv_head * args.k_head * element_bytes);
    v = reinterpret_cast<u64>(args.v) + static_cast<u64>(kv_head * args.v_head * element_bytes);
    const bool dense = args.page_size == kDensePage;
    pages = static_cast<const i32*>(args.pages) + (dense ? 0 : item.kv_base);
    k += static_cast<u64>(dense ? item.kv_base * k_row : 0);
    v += static_cast<u64>(dense ? item.kv_base * v_row : 0);
  }

  ROCADE_DEVICE Strides keys() const { return {k, k_row, k_page}; }
  ROCADE_DEVICE Strides values() const { return {v, v_row, v_page}; }

  /// A page outside the pool becomes page 0, so that nothing outside is read.
  ROCADE_DEVICE u32 page(i32 key) const {
    if (kBranches && page_size == kDensePage)
      return 0;
    const u32 index = static_cast<u32>(pages[divide(static_cast<u32>(key), page_magic)]);
    return index < num_pages ? index : 0;
  }
  /// Where the key, or its value, lies.
  ROCADE_DEVICE u64 at(i32 key, u32 page, bool value) const {
    return (value ? values() : keys()).place(page, slot(key));
  }
  ROCADE_DEVICE Places at(i32 key, u32 page) const {
    if (kBranches && page_size == kDensePage)
      return {k + scaled(static_cast<u32>(key), k_row), v + scaled(static_cast<u32>(key), v_row)};
    return {keys().place(page, slot(key)), values().place(page, slot(key))};
  }

private:
  ROCADE_DEVICE u32 slot(i32 key) const {
    return static_cast<u32>(key) - divide(static_cast<u32>(key), page_magic) * page_size;
  }
  static constexpr bool kBranches = kWave == 64; // cost nothing there: all lanes agree
};

/// The same, without registers: in LDS, where every thread reads what it needs of it.
struct KeyPlacesInLds {
  static constexpr int kBytes = 2 * sizeof(Strides) + 2 * sizeof(u64); // a multiple of 16
  const Args& args;
  const LdsBytes lds;

  ROCADE_DEVICE KeyPlacesInLds(const KeySource& from, LdsBytes place) : args(from.args), lds(place) {
    if (thread_id() > 0)
      return;
    const KeyPlaces places(from);
    write_lds(lds, places.keys());
    write_lds(lds + sizeof(Strides), places.values());
    write_lds(table(), places.pages);
  }

  ROCADE_DEVICE u32 entry(i32 key) const { return divide(static_cast<u32>(key), args.page_magic); }
  ROCADE_DEVICE u32 page(i32 key) const {
    const u32 index = static_cast<u32>(read_lds<const i32*>(table())[entry(key)]);
    return index < args.num_pages ? index : 0;
  }
  ROCADE_DEVICE u64 at(i32 key, u32 page, bool value) const {
    const u32 slot = static_cast<u32>(key) - entry(key) * args.page_size;
    const Strides of = read_lds<Strides>(lds + (value ? sizeof(Strides) : 0));
    return of.place(page, slot);
  }

private:
  ROCADE_DEVICE LdsBytes table() const { return lds + 2 * sizeof(Strides); }
};

/// The same, in scalar registers.
struct KeyPlacesHeld : KeyPlaces {
  static constexpr int kBytes = 0;
  ROCADE_DEVICE KeyPlacesHeld(const KeySource& from, LdsBytes) : KeyPlaces(from) {}
};

template <bool kScalars> struct WhereKept {
  using type = KeyPlacesHeld;
};
template <> struct WhereKept<false> {
  using type = KeyPlacesInLds;
};
using KeptPlaces = typename WhereKept<kWave == 64>::type;

/// Rows of tiles in LDS: each half of an entry, a key's address or its value's, is worked out by one thread
/// of the block, two tiles ahead, from a page fetched three tiles ahead. There are two tables.
template <int kKeys, int kThreads> struct LdsTable {
  static constexpr int kEntry = sizeof(Places), kTable = kKeys * kEntry;
  static constexpr int kBytes = 2 * kTable + KeptPlaces::kBytes;
  // A key's address by one thread, its value's by another: where selecting strides costs less than waiting.
  static constexpr bool kSplit = kWave != 64;
  static constexpr int kParts = kSplit ? 2 : 1, kAll = kParts * kKeys;
  static constexpr int kOwn = (kAll + kThreads - 1) / kThreads; // parts of one thread in a table
  static constexpr int kAtOnce = 4;                             // rows to look up together

  const KeptPlaces kept;
  const i32 end;
  const LdsBytes tables;
  u32 page[kOwn] = {}; // of this thread's parts in the table to come

  ROCADE_DEVICE LdsTable(const KeySource& from, i32 keys_end, LdsBytes lds)
      : kept(from, lds + 2 * kTable), end(keys_end), tables(lds) {}

  // Up to the barrier in `begin` places are those of `from`: `kept` may not be there yet.

  /// Looks up the pages of the first tile. `part`: what `copy_part` said, in all of these.
  ROCADE_DEVICE void look_up(const KeySource& from, i32 first, u32 part) {
    fetch(KeyPlaces(from), first, part);
  }

  /// Makes ready for the copies of the first tile, whose pages were looked up.
  ROCADE_DEVICE void begin(const KeySource& from, i32 first, u32 part) {
    const KeyPlaces places(from);
    write(places, first, 0, part);
    fetch(places, first + kKeys, part);
    barrier();
  }

  /// In front of the copies of a tile.
  ROCADE_DEVICE void open(i32) {}

  /// Where a row of the opened tile lies.
  ROCADE_DEVICE Places row(int parity, u32 own_row, int step) const {
    return read_lds<Places>(tables + parity * kTable + own_row * kEntry + step * kEntry);
  }

  /// Behind the copies of a tile: makes ready for the next one, behind the next barrier.
  ROCADE_DEVICE void advance(i32 tile, int parity, u32 part) {
    write(kept, tile + kKeys, 1 - parity, part);
    fetch(kept, tile + 2 * kKeys, part);
  }

private:
  static ROCADE_DEVICE int own(u32 part, int k) {
    return static_cast<int>(kPartOfLane ? part / kChunk : thread_id()) + k * kThreads;
  }
  static ROCADE_DEVICE bool exists(int own) { return kAll % kThreads == 0 || own < kAll; }
  ROCADE_DEVICE i32 key(i32 tile, int own) const { return smaller(tile + own / kParts, end - 1); }

  // Tiles behind the last one are worked out, too, where nothing branches: the last key stands for all.
  ROCADE_DEVICE bool skips(i32 tile) const { return !kCopyGroups && tile >= end; }

  template <class Known> ROCADE_DEVICE void fetch(const Known& places, i32 tile, u32 part) {
    if (skips(tile))
      return;
    ROCADE_FOR (k, kOwn)
      if (exists(own(part, k)))
        page[k] = places.page(key(tile, own(part, k)));
  }
  template <class Known> ROCADE_DEVICE void write(const Known& places, i32 tile, int parity, u32 part) const {
    ROCADE_FOR (k, kOwn) {
      const int at = own(part, k);
      if (!exists(at))
        continue;
      const LdsBytes to = tables + parity * kTable + at * (kEntry / kParts);
      if constexpr (kSplit)
        write_lds(to, places.at(key(tile, at), page[k], at % 2 != 0));
      else
        write_lds(to, places.at(key(tile, at), page[k]));
    }
  }
};

/// Rows of tiles in the lanes of each wave, for GPUs whose LDS is full: lane L knows row L, and copies read
/// lanes. All lanes of a copy fill the same row.
template <int kKeys, int kThreads> struct LaneTable {
  static constexpr int kBytes = 0, kAtOnce = 1;
  static_assert(kKeys <= kWave);

  const Args& args;
  const KeyPlaces places;
  const i32 end;
  u32 page = 0; // of this lane's row in the tile to come
  Places own;

  ROCADE_DEVICE LaneTable(const KeySource& from, i32 keys_end, LdsBytes)
      : args(from.args), places(from), end(keys_end) {}

  ROCADE_DEVICE void look_up(const KeySource&, i32 first, u32) { fetch(first); }
  ROCADE_DEVICE void begin(const KeySource&, i32, u32) {}
  ROCADE_DEVICE void open(i32 tile) {
    const Args& anew = *opaque(&args); // what it says of pages would take registers all along
    const u32 at = static_cast<u32>(key(tile));
    if (anew.page_size == kDensePage) {
      own = {places.k + scaled(at, places.k_row), places.v + scaled(at, places.v_row)};
      return;
    }
    const u32 slot = at - divide(at, anew.page_magic) * anew.page_size;
    own = {places.keys().place(page, slot), places.values().place(page, slot)};
  }
  ROCADE_DEVICE Places row(int, u32 own_row, int step) {
    // One row after the other, worked out here: all at once they would take too many scalar registers.
    keep_order(own.key);
    keep_order(own.value);
    const i32 from = opaque_uniform(static_cast<i32>(own_row)) + step;
    return {from_lane(own.key, from), from_lane(own.value, from)};
  }
  ROCADE_DEVICE void advance(i32 tile, int, u32) { fetch(tile + kKeys); }

private:
  ROCADE_DEVICE i32 key(i32 tile) const { return smaller(tile + lane(), end - 1); }
  ROCADE_DEVICE void fetch(i32 tile) {
    const Args& anew = *opaque(&args);
    if (anew.page_size == kDensePage || tile >= end)
      return;
    const u32 entry = divide(static_cast<u32>(key(tile)), anew.page_magic);
    const u32 index = static_cast<u32>(places.pages[entry]);
    page = index < anew.num_pages ? index : 0;
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
  u32 part;        // of a tile in LDS that this lane, or its wave, fills first
  int parity = 0;  // of the next tile to be copied
  int used = 0;    // pair of the tile in use

  ROCADE_DEVICE KeyCopies(const Table& rows, u32 this_wave, u32 lane_part, u32 row_bytes)
      : table(rows), end(rows.end), wave(this_wave), bytes(row_bytes), part(lane_part) {}

  /// Looks up where the first tile is, which takes a while.
  ROCADE_DEVICE void look_up(const KeySource& from, i32 first) {
    if (first < end)
      table.look_up(from, first, part);
  }

  /// Starts the copies of the first tiles.
  ROCADE_DEVICE void begin(const KeySource& from, i32 first, LdsBytes lds) {
    if (first < end)
      table.begin(from, first, part);
    ROCADE_FOR (k, kStages - 1) {
      if (first + (kGroups ? 0 : k * kKeys) < end) {
        if (k > 0)
          barrier(); // the table of this tile was written with the copies of the one before
        start(first + k * kKeys, lds + k * kPairBytes);
      }
    }
  }

  /// Waits for a tile, the next one in order, and frees the one before. Returns where the tile lies.
  ROCADE_DEVICE LdsBytes wait(i32 tile, LdsBytes lds) {
    if (kGroups || tile + kAhead - kKeys < end)
      copies_done<kStages - 2, 2 * kCopies>();
    else
      copies_done<0, 0>();
    barrier();
    return lds + used * kPairBytes;
  }

  /// After `wait`: starts the copies of the tile that takes the place of the freed one, if there is one.
  ROCADE_DEVICE void refill(i32 tile, LdsBytes lds) {
    const i32 next = tile + kAhead;
    if (kGroups || next < end)
      start(next, lds + (used == 0 ? kStages - 1 : used - 1) * kPairBytes);
    used = used + 1 == kStages ? 0 : used + 1;
  }

private:
  // Whether copies are counted in groups: then there is one for every tile, and it may be empty. Nothing
  // branches, so that what is worked out for copies fills the gaps between products.
  static constexpr bool kGroups = kCopyGroups;

  // Starts the copies of a tile to the place of its keys, which its values follow.
  ROCADE_DEVICE void start(i32 tile, LdsBytes to) {
    table.open(tile);
    part = again(part);
    const bool wanted = tile < end; // else there is no such tile
    each<(kCopies + kAtOnce - 1) / kAtOnce>([&]<int first>()
                                                ROCADE_INLINED { start_some<first * kAtOnce>(to, wanted); });
    end_copies();
    table.advance(tile, parity, part);
    parity = 1 - parity;
  }

  static constexpr int kAtOnce = Table::kAtOnce;

  template <int kFirst> ROCADE_DEVICE void start_some(LdsBytes to, bool wanted) {
    constexpr int kCount = at_most(kCopies - kFirst, kAtOnce);
    Places rows[kCount];
    ROCADE_FOR (k, kCount)
      rows[k] = table.row(parity, KeyTile::copy_row(wave, part), KeyTile::copy_step(kFirst + k));
    each<kCount>([&]<int k>() ROCADE_INLINED { start_copy<kFirst + k>(rows[k], to, wanted); });
  }

  // Where the copies go: worked out anew where that is cheap.
  ROCADE_DEVICE u32 share() const { return kPartOfLane ? part : wave * KeyTile::kWaveBytes; }

  // Columns beyond head_dim get the row's first elements: queries are 0 there, and such outputs are not
  // stored.
  ROCADE_DEVICE u32 within(u32 byte) const { return byte < bytes ? byte : byte % kChunk; }

  template <int c> ROCADE_DEVICE void start_copy(const Places& from, LdsBytes to, bool wanted) const {
    copy_to_lds<c * KeyTile::kAllBytes>(wanted, to, share(),
                                        reinterpret_cast<const char*>(from.key) +
                                            within(KeyTile::copy_byte(wave, part, c)));
    copy_to_lds<KeyTile::kBytes + c * ValueTile::kAllBytes>(wanted, to, share(),
                                                            reinterpret_cast<const char*>(from.value) +
                                                                within(ValueTile::copy_byte(wave, part, c)));
  }
};

} // namespace rocade

// Attention of one block of threads: load, multiply, softmax, multiply, store, on tiles, item after item.
//
// Waves share tiles of keys and values in LDS, of which there are two pairs: while one is used, the other is
// filled. kRowWaves waves stand side by side over query rows, kKeyWaves over the keys of a tile; the latter's
// states are merged at the end of an item.
#pragma once
#include "attention/keys.hpp"
#include "attention/rows.hpp"
#include "attention/store.hpp"
#include "tiles/softmax.hpp"

namespace rocade {

inline constexpr float kLog2E = 1.4426950408889634f;
/// Stands for a scale of 0, which would make NaN of the -inf of keys that are not visible.
inline constexpr float kLeastScale = 1e-30f;

/// Shape of a block's work. Query rows: kRowWaves * kRowTiles * kSize.
template <class Element, int kHeadDim, int kProduct, int kRowTileCount, int kRowWaveCount, int kKeyWaveCount,
          int kTileKeys, int kMostStages = 2, bool kQueriesRest = false>
struct Shape {
  using T = Element;
  using P = Product<T, kProduct>;
  static constexpr int kDim = kHeadDim, kRowTiles = kRowTileCount, kKeys = kTileKeys;
  static constexpr int kRowWaves = kRowWaveCount, kKeyWaves = kKeyWaveCount, kWaves = kRowWaves * kKeyWaves;
  static constexpr int kThreads = kWaves * kWave;
  static constexpr int kBlocks = kDim > 128      ? 1
                                 : kKeyWaves > 1 ? 3
                                                 : 2; // that narrow waves' registers must leave room for
  static constexpr int kWaveRows = kRowTiles * P::kRows, kBlockRows = kRowWaves * kWaveRows;
  static constexpr int kWaveKeys = kKeys / kKeyWaves; // of each tile
  static constexpr int kKeyTiles = kWaveKeys / P::kColumns, kOutTiles = kDim / P::kColumns;
  static constexpr int kDimSteps = kDim / P::kDepth, kKeySteps = kWaveKeys / P::kDepth;
  static_assert(sizeof(T) == kKeyBytes);
  static_assert(kKeySteps * P::kDepth == kWaveKeys && kDimSteps * P::kDepth == kDim);

  static constexpr int kRowBytes = kDim * static_cast<int>(sizeof(T));
  using KeyTile = SharedTile<T, kKeys, kDim, AlongRows<kRowBytes>, kWaves>;
  using ValueTile = SharedTile<T, kKeys, kDim, AcrossRows<kRowBytes, P::kColumns>, kWaves>;
  static constexpr int kPairBytes = KeyTile::kBytes + ValueTile::kBytes;
  using Queries = RestingOperands<P, kRowTiles, kDimSteps, kQueriesRest, kRowWaves * kWave * kChunk>;

  // Pairs of tiles: as many as fit beside the rest, at least two.
  static constexpr int kFit =
      (kTarget.lds_bytes - Queries::kBytes - LdsTable<kKeys, kThreads>::kBytes) / kPairBytes;
  static constexpr int kStages = kFit < 2 ? 2 : kFit < kMostStages ? kFit : kMostStages;
  static constexpr int kTilesBytes = kStages * kPairBytes;
  using Table = typename TableOf<kKeys, kThreads, (kFit >= 2)>::type;
  using Copies = KeyCopies<KeyTile, ValueTile, Table, kStages>;
  static constexpr int kTablesEnd = kTilesBytes + Table::kBytes;
  static constexpr int kLdsBytes = kTablesEnd + Queries::kBytes;
  static_assert(kLdsBytes <= kTarget.lds_bytes);

  // Copies queue in front of the reads of matrix operands where they share a path: then they start behind
  // them.
  static constexpr bool kRefillLate = kWave != 64 && kKeyWaves == 1;
  // Queries that go to LDS are waited for, so the first pages are looked up in front of them. Scalar
  // registers have no room for both.
  static constexpr bool kQueriesFirst = kWave == 64;
  // Tiles that every row sees whole have code of their own where registers are scarce: what masks need would
  // leave it none to read operands ahead.
  static constexpr bool kPlainApart = kWave != 64;

  using Logits = RegisterTile<P, kRowTiles, kKeyTiles>;
  using Output = RegisterTile<P, kRowTiles, kOutTiles>;
};

/// One wave's part of an item.
template <class S> struct Attend {
  using T = typename S::T;
  using P = typename S::P;
  using Operand = typename P::Operand;
  using KeyReader = RowReader<typename S::KeyTile, P>;
  using ValueReader = ColumnReader<typename S::ValueTile, P>;
  static constexpr int kLaneRows = S::kRowTiles * P::kLaneRows;

  const Args& args;
  const Mask mask;
  const Rows rows;
  const LdsBytes lds;
  const u32 wave, row_wave, key_wave;
  const u32 copied;                 // of a tile: where this lane's, or this wave's, copies go
  u32 key_part = 0, value_part = 0; // of a pair of tiles: where this lane's operands begin
  float scale;                      // of logits, log2, never negative
  typename S::Queries queries;
  KeyRange visible[kLaneRows]; // to this lane's rows
  KeyRange seen, all_see;      // of any, and of every, row of this wave
  KeyRange visited;            // by the block
  KeyRange plain = {0, 0};     // tiles that begin here: all rows of the block see them whole, without a cap
  Softmax<P, S::kRowTiles> softmax;
  typename S::Output output;

  ROCADE_DEVICE Attend(const Args& a, const Item& item, u32 kv_head, LdsBytes block_lds)
      : args(a), mask(a, item), rows(a, item, kv_head, S::kBlockRows), lds(block_lds),
        wave(static_cast<u32>(uniform(static_cast<i32>(wave_id())))), row_wave(wave / S::kKeyWaves),
        key_wave(wave % S::kKeyWaves), copied(copy_part(wave * S::KeyTile::kWaveBytes)),
        queries(block_lds + S::kTablesEnd + query_part()) {
    if constexpr (kTranspose == Transpose::matrices) {
      key_part = kept(key_wave * static_cast<u32>(S::kWaveKeys * S::kRowBytes) + KeyReader(lane()).first());
      value_part = kept(key_wave * static_cast<u32>(S::kWaveKeys * S::kRowBytes) + ValueReader::first());
    }
    output.clear();
    find_visible();
    if constexpr (S::kQueriesFirst)
      load_queries();
  }

  ROCADE_DEVICE void run() {
    const KeySource from{args, rows.item, rows.kv_head};
    const typename S::Table table(from, visited.end, lds + S::kTilesBytes);
    typename S::Copies copies(table, wave, copied, args.head_dim * static_cast<u32>(sizeof(T)));
    copies.look_up(from, visited.begin);
    if constexpr (!S::kQueriesFirst)
      load_queries();
    copies.begin(from, visited.begin, lds);
    i32 tile = visited.begin;
    while (S::kPlainApart && tile < visited.end) {
      for (; tile >= plain.begin && tile < plain.end; tile += S::kKeys)
        visit<true>(copies, tile, copies.wait(tile, lds));
      for (; tile < visited.end && (tile < plain.begin || tile >= plain.end); tile += S::kKeys)
        visit<false>(copies, tile, copies.wait(tile, lds));
    }
    for (; !S::kPlainApart && tile < visited.end; tile += S::kKeys)
      visit<false>(copies, tile, copies.wait(tile, lds));
    barrier(); // LDS is free again
  }

  // Waves that share rows leave their states in LDS for the first of them, which stores. What is read of the
  // arguments is given anew: they would take registers all along.
  ROCADE_DEVICE void store(const Args& again, const Item& item) {
    float total[kLaneRows];
    ROCADE_FOR (k, kLaneRows)
      total[k] = softmax.total(k);
    if constexpr (S::kKeyWaves > 1) {
      using Exchange = StateExchange<P, kLaneRows, S::kRowTiles, S::kOutTiles>;
      static_assert(S::kRowWaves * (S::kKeyWaves - 1) * Exchange::kBytes <= S::kLdsBytes);
      const LdsBytes mine = lds + row_wave * ((S::kKeyWaves - 1) * Exchange::kBytes);
      if (key_wave > 0)
        Exchange::leave(mine + (key_wave - 1) * Exchange::kBytes, softmax.base, total, output);
      barrier();
      for (u32 w = 1; key_wave == 0 && w < S::kKeyWaves; ++w)
        Exchange::merge(mine + (w - 1) * Exchange::kBytes, softmax.base, total, output);
      barrier();
      if (key_wave > 0)
        return;
    }
    const Rows these(again, item, rows.kv_head, S::kBlockRows);
    const Results<S> results(again, these);
    each<kLaneRows>([&]<int k>() ROCADE_INLINED {
      if (these.holds(row(k)))
        results.template store<k>(row(k), softmax.base[k], total[k], output);
    });
  }

private:
  // Where this lane's queries begin; waves side by side over keys have the same ones.
  ROCADE_DEVICE u32 query_part() const {
    return kPartOfLane && S::kKeyWaves == 1 ? copied : (row_wave * kWave + lane_id()) * kChunk;
  }

  // Keys of a tile that are this wave's.
  ROCADE_DEVICE KeyRange keys_of(i32 tile) const {
    const i32 first = tile + static_cast<i32>(key_wave) * S::kWaveKeys;
    return {first, first + S::kWaveKeys};
  }

  // One tile, and the copies of a later one.
  template <bool kPlain> ROCADE_DEVICE void visit(typename S::Copies& copies, i32 tile, LdsBytes pair) {
    if constexpr (!S::kRefillLate)
      copies.refill(tile, lds);
    const KeyRange own = keys_of(tile);
    const bool meets = kPlain || own.meets(seen);
    typename S::Logits logits;
    logits.clear(); // also where nothing is multiplied: else they would live from tile to tile
    if (meets)
      multiply_keys(logits, pair);
    if constexpr (S::kRefillLate)
      copies.refill(tile, lds);
    if (meets)
      attend_tile<kPlain>(logits, own, pair + S::KeyTile::kBytes);
  }

  ROCADE_DEVICE u32 row(int k) const {
    return row_wave * S::kWaveRows + static_cast<u32>(k / P::kLaneRows * P::kRows + P::row(k % P::kLaneRows));
  }

  ROCADE_DEVICE KeyRange visible_to(int k) const { return mask.visible(rows.position(rows.within(row(k)))); }

  ROCADE_DEVICE void find_visible() {
    ROCADE_FOR (k, kLaneRows)
      visible[k] = visible_to(k);
    if (rows.listed() || args.mask != nullptr) {
      seen = visited = mask.keys;
      all_see = KeyRange{0, 0};
      return;
    }
    const u32 first = row_wave * S::kWaveRows;
    const i32 low = rows.position(rows.within(first)),
              high = rows.position(rows.within(first + S::kWaveRows - 1));
    seen = mask.any(low, high);
    if (!rows.holds(first))
      seen.end = seen.begin;
    all_see = mask.every(low, high);
    const i32 from = rows.position(0), to = rows.position(rows.count - 1);
    visited = mask.any(from, to);
    if (S::kPlainApart && args.soft_cap <= 0) {
      plain = mask.every(from, to);
      plain.end -= S::kKeys - 1;
    }
  }

  // A negative scale changes the queries' sign instead, so that the largest logit is the largest product.
  ROCADE_DEVICE void load_queries() {
    scale = __builtin_fmaxf(__builtin_fabsf(args.scale) * kLog2E, kLeastScale);
    ROCADE_FOR (m, S::kRowTiles) {
      const T* from[P::kPieces];
      ROCADE_FOR (p, P::kPieces) {
        const u32 at = rows.within(row(m * P::kLaneRows + P::piece_row(p)));
        from[p] = static_cast<const T*>(args.q) + rows.place(at, args.q_row, args.q_head);
      }
      ROCADE_FOR (s, S::kDimSteps) {
        Operand operand;
        ROCADE_FOR (p, P::kPieces)
          load_piece(operand, p, from[p], static_cast<u32>(s * P::kDepth + P::piece_depth(p)));
        if (args.scale < 0)
          operand = bits_as<Operand>(bits_as<Words4>(operand) ^ 0x80008000u);
        queries.set(m, s, operand);
      }
    }
  }

  // Piece p of an operand; zeros beyond head_dim.
  ROCADE_DEVICE void load_piece(Operand& operand, int p, const T* from, u32 d) const {
    using Piece = Vector<u16, P::kPiece>;
    Piece piece = *reinterpret_cast<const Piece*>(from + (d < args.head_dim ? d : 0));
    if (args.head_dim < S::kDim && d >= args.head_dim)
      piece = Piece{};
    ROCADE_FOR (e, P::kPiece) {
      const u16 bits = piece[e];
      operand[p * P::kPiece + e] = bits_as<T>(bits);
    }
  }

  // From logits of a tile to its part of the outputs.
  template <bool kPlain>
  ROCADE_DEVICE void attend_tile(typename S::Logits& logits, KeyRange own, LdsBytes values) {
    float factor = scale;
    if (!kPlain && args.soft_cap > 0)
      factor = cap(logits);
    if (!kPlain && !all_see.contains(own))
      hide(logits, own.begin);
    softmax.follow(logits, factor, output);
    softmax.weigh(logits, factor);
    multiply_values(logits, values);
  }

  ROCADE_DEVICE void multiply_keys(typename S::Logits& logits, LdsBytes keys) {
    if constexpr (kTranspose == Transpose::matrices) {
      const LdsBytes from = keys + key_part;
      multiply_keys(logits, [&](int n, int s) ROCADE_INLINED { return KeyReader::read_from(from, n, s); });
    } else {
      const KeyReader reader(lane_again());
      const LdsBytes from = keys + key_wave * static_cast<u32>(S::kWaveKeys * S::kRowBytes);
      multiply_keys(logits, [&](int n, int s) ROCADE_INLINED { return reader.read(from, n, s); });
    }
  }

  template <class F> ROCADE_DEVICE void multiply_keys(typename S::Logits& logits, F&& read) {
    ROCADE_FOR (s, S::kDimSteps) {
      Operand operands[S::kRowTiles];
      ROCADE_FOR (m, S::kRowTiles)
        operands[m] = queries.get(m, s);
      ROCADE_FOR (n, S::kKeyTiles) {
        const Operand columns = read(n, s);
        ROCADE_FOR (m, S::kRowTiles)
          P::multiply(logits.part[m][n], operands[m], columns);
      }
    }
  }

  ROCADE_DEVICE void multiply_values(const typename S::Logits& weights, LdsBytes values) {
    const LdsBytes from = kTranspose == Transpose::matrices
                              ? values
                              : values + key_wave * static_cast<u32>(S::kWaveKeys * S::kRowBytes);
    ROCADE_FOR (t, S::kKeySteps) {
      Operand operands[S::kRowTiles];
      ROCADE_FOR (m, S::kRowTiles)
        operands[m] = weights_of(weights, m, t);
      ValueReader::each_operand(from, value_part, t, [&](int i, Operand columns) ROCADE_INLINED {
        ROCADE_FOR (m, S::kRowTiles)
          P::multiply(output.part[m][i], operands[m], columns);
      });
    }
  }

  static ROCADE_DEVICE Operand weights_of(const typename S::Logits& weights, int m, int t) {
    Vector<float, 8> x;
    ROCADE_FOR (e, 8) {
      const int at = 8 * t + e;
      x[e] = weights.part[m][at / P::kResults][at % P::kResults];
    }
    return rounded<T, 8>(x);
  }

  // Logits become cap * tanh(logit / cap) in units of cap; returns their scale in log2.
  ROCADE_DEVICE float cap(typename S::Logits& logits) const {
    const float factor = 2 * scale / args.soft_cap; // tanh(x) = 1 - 2 / (1 + exp2(2 x log2 e))
    ROCADE_FOR (m, S::kRowTiles)
      ROCADE_FOR (n, S::kKeyTiles)
        ROCADE_FOR (r, P::kResults)
          logits.part[m][n][r] = 1 - 2 * reciprocal(1 + exp2(logits.part[m][n][r] * factor));
    return args.soft_cap * kLog2E;
  }

  // Bounds count from the key of a lane's register 0, so that registers compare with constants. Few tiles
  // need both.
  ROCADE_DEVICE void hide(typename S::Logits& logits, i32 first) const {
    i32 begin[kLaneRows], end[kLaneRows];
    bool late = false;
    ROCADE_FOR (k, kLaneRows) {
      const KeyRange sees = kWave == 64 ? visible[k] : visible_to(k); // registers, or time
      begin[k] = sees.begin - first - P::column(0);
      end[k] = sees.end - first - P::column(0);
      late |= begin[k] > 0;
    }
    hide_unless(logits, [&](int k, int key) ROCADE_INLINED { return key < end[k]; });
    if (any_lane(late))
      hide_unless(logits, [&](int k, int key) ROCADE_INLINED { return key >= begin[k]; });
    if (args.mask != nullptr)
      hide_by_bits(logits, first);
  }

  template <class F> static ROCADE_DEVICE void hide_unless(typename S::Logits& logits, F&& sees) {
    ROCADE_FOR (m, S::kRowTiles)
      ROCADE_FOR (n, S::kKeyTiles)
        ROCADE_FOR (r, P::kResults)
          if (!sees(m * P::kLaneRows + P::row_of(r), n * P::kColumns + P::offset(r)))
            logits.part[m][n][r] = kNegativeInfinity;
  }

  ROCADE_DEVICE void hide_by_bits(typename S::Logits& logits, i32 first) const {
    ROCADE_FOR (k, kLaneRows) {
      const i64 start = rows.item.mask_bit + i64{rows.token(rows.within(row(k)))} * rows.item.mask_step;
      const i64 last = start + mask.keys.end - 1;
      ROCADE_FOR (n, S::kKeyTiles) {
        const u64 bits = mask_bits(start + first + n * P::kColumns, last) >> P::column(0);
        ROCADE_FOR (r, P::kResults)
          if (P::row_of(r) == k % P::kLaneRows && (bits >> P::offset(r) & 1) == 0)
            logits.part[k / P::kLaneRows][n][r] = kNegativeInfinity;
      }
    }
  }

  // The bits of kColumns keys, from bit `start` of the custom mask on; those behind `last` may be anything.
  ROCADE_DEVICE u64 mask_bits(i64 start, i64 last) const {
    const u8* bytes = static_cast<const u8*>(args.mask);
    u64 bits = 0;
    ROCADE_FOR (b, (P::kColumns + 14) / 8)
      bits |= u64{bytes[smaller((start >> 3) + b, last >> 3)]} << 8 * b;
    return bits >> (start & 7);
  }
};

/// All items of this block, each for its KV heads: item b is the first one of block b, so that only others
/// wait for where they are. What is needed again is read again: the work between takes all registers.
template <class S> ROCADE_DEVICE void attend_items(const Args* args, LdsBytes lds) {
  const auto* others = (const ROCADE_CONSTANT i32*)args->first_item + block_x();
  const i32 end = others[1];
  i32 next = others[0];
  for (i32 k = static_cast<i32>(block_x());; k = next++) {
    const Item* item = (const Item*)args->items + k;
    for (i32 n = 0; n < opaque(item)->kv_heads; ++n) {
      Attend<S> attend(*opaque(args), *opaque(item), static_cast<u32>(opaque(item)->kv_head + n), lds);
      attend.run();
      attend.store(*opaque(args), *opaque(item));
    }
    if (next >= end)
      return;
  }
}

} // namespace rocade

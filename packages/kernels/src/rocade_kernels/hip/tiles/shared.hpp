// Tiles of keys or values in LDS: where their chunks of 16 bytes lie, how copies fill them, and their
// operands.
#pragma once
#include "arch/lds.hpp"
#include "arch/mma.hpp"

namespace rocade {

inline constexpr int kChunk = 16; // bytes

/// Loops over registers, unrolled: their indices must be constants.
#define ROCADE_FOR_BY(k, n, step) _Pragma("unroll") for (int k = 0; k < n; k += step)
#define ROCADE_FOR(k, n) ROCADE_FOR_BY (k, n, 1)

/// Behind the parameters of a lambda that works on registers: a call would put them in memory.
#define ROCADE_INLINED __attribute__((always_inline))

/// f.operator()<k>() for k from 0 to n - 1.
template <int n, int k = 0, class F> ROCADE_DEVICE void each(F&& f) {
  if constexpr (k < n) {
    f.template operator()<k>();
    each<n, k + 1>(f);
  }
}

/// Rearranges the chunks of a row so that reads across rows meet different banks: an involution in each row.
template <u32 kRepeat, u32 kMask, u32 kStep> struct Swizzle {
  /// Rows whose distance is a multiple of this are rearranged alike.
  static constexpr u32 kPeriod = kRepeat * (kMask + 1);
  static ROCADE_DEVICE u32 chunk(u32 row, u32 chunk) { return chunk ^ ((row / kRepeat & kMask) * kStep); }
};

constexpr int at_most(int x, int limit) { return x < limit ? x : limit; }

/// For operands read along rows, from neighbouring rows.
template <int kRowBytes>
using AlongRows =
    Swizzle < kRowBytes<kBankSpan ? kBankSpan / kRowBytes : 1, at_most(kBankSpan, kRowBytes) / kChunk - 1, 1>;
/// For operands of kColumns columns read transposed. Quads: what lanes read at once are pieces of kColumns
/// elements of several rows. Matrices: 8 rows of 16 bytes. In registers: whole rows.
template <int kRowBytes, int kColumns> struct AcrossRowsOf {
  static constexpr int kPieceBytes = kColumns * 2, kPieces = kBankSpan / kPieceBytes;
  static constexpr int kRepeat = kRowBytes < kBankSpan ? kBankSpan / kRowBytes : 1;
  using quads = Swizzle<kRepeat, kPieces / kRepeat - 1, kPieceBytes / kChunk>;
  using matrices = Swizzle<1, 7, 1>;
  using in_registers = Swizzle<1, 0, 1>;
};
template <int kRowBytes, int kColumns, Transpose> struct AcrossRowsFor {
  using type = typename AcrossRowsOf<kRowBytes, kColumns>::in_registers;
};
template <int kRowBytes, int kColumns> struct AcrossRowsFor<kRowBytes, kColumns, Transpose::quads> {
  using type = typename AcrossRowsOf<kRowBytes, kColumns>::quads;
};
template <int kRowBytes, int kColumns> struct AcrossRowsFor<kRowBytes, kColumns, Transpose::matrices> {
  using type = typename AcrossRowsOf<kRowBytes, kColumns>::matrices;
};
template <int kRowBytes, int kColumns>
using AcrossRows = typename AcrossRowsFor<kRowBytes, kColumns, kTranspose>::type;

/// Rows x kDim elements, row after row, filled by direct copies of `kWaves` waves.
template <class Element, int kTileRows, int kTileDim, class TileSwizzle, int kWaves> struct SharedTile {
  using T = Element;
  using Rearranged = TileSwizzle;
  static constexpr int kRows = kTileRows, kDim = kTileDim;
  static constexpr int kRowBytes = kDim * static_cast<int>(sizeof(T));
  static constexpr int kBytes = kRows * kRowBytes;

  static constexpr int kWaveBytes = kWave * kCopyBytes; // of one copy of a wave
  static constexpr int kAllBytes = kWaves * kWaveBytes; // of one copy of all waves
  static constexpr int kCopies = kBytes / kAllBytes;    // of a wave, for the whole tile
  static_assert(kCopies * kAllBytes == kBytes && (kAllBytes % kRowBytes == 0 || kRowBytes % kAllBytes == 0),
                "waves share a tile in whole copies, which are whole rows or parts of one row");

  /// Rows between what a lane fills in copy 0 and in copy c.
  static constexpr int copy_step(int c) { return c * kAllBytes / kRowBytes; }
  /// Row of the tile that this lane fills in copy 0. `part`: what `copy_part` of its wave's share said.
  static ROCADE_DEVICE u32 copy_row(u32 wave, u32 part) { return lane_bytes(wave, part) / kRowBytes; }
  /// Byte of the row, in memory, that this lane fetches in copy c.
  static ROCADE_DEVICE u32 copy_byte(u32 wave, u32 part, u32 c) {
    const u32 within = (c * kAllBytes + lane_bytes(wave, part)) % kRowBytes;
    const u32 row = copy_row(wave, part) + c * kAllBytes / kRowBytes % Rearranged::kPeriod;
    return Rearranged::chunk(row, within / kChunk) * kChunk + within % kChunk;
  }

private:
  static ROCADE_DEVICE u32 lane_bytes(u32 wave, u32 part) {
    return kPartOfLane ? part : (wave * kWave + lane_id()) * kCopyBytes;
  }
};

/// Reads `columns` operands whose depth runs along the tile's rows: logits = queries x keys.
template <class Tile, class P> struct RowReader {
  using Rearranged = typename Tile::Rearranged;
  static constexpr u32 kStepBytes = P::kDepth / 8 * kChunk;
  // Rearranging is the same for all operands of a tile, and steps only change other bits of the chunk.
  static constexpr bool kAlike = P::kColumns % Rearranged::kPeriod == 0;
  static_assert(kAlike || Rearranged::kPeriod % P::kColumns == 0);

  u32 row, chunk;

  ROCADE_DEVICE explicit RowReader(int lane)
      : row(static_cast<u32>(P::read_column(lane))), chunk(static_cast<u32>(P::read_chunk(lane))) {}

  /// Of this lane's part of operand 0, step 0, from the tile's start on.
  ROCADE_DEVICE u32 first() const { return row * Tile::kRowBytes + Rearranged::chunk(row, chunk) * kChunk; }

  /// Operand of tile rows kColumns * n + ..., depth step s.
  ROCADE_DEVICE typename P::Operand read(LdsBytes tile, int n, int s) const {
    const u32 at = Rearranged::chunk(row + static_cast<u32>(n * P::kColumns) % Rearranged::kPeriod,
                                     static_cast<u32>(s) * (P::kDepth / 8) + chunk);
    return read_operand<typename Tile::T>(tile + n * (P::kColumns * Tile::kRowBytes) + row * Tile::kRowBytes +
                                          at * kChunk);
  }

  /// The same, where `from` is `first()` into a tile that begins at a multiple of its row's bytes.
  static ROCADE_DEVICE typename P::Operand read_from(LdsBytes from, int n, int s) {
    static_assert(kAlike);
    return read_operand<typename Tile::T>(flipped(from, static_cast<u32>(s) * kStepBytes) +
                                          n * (P::kColumns * Tile::kRowBytes));
  }
};

/// Elements of a row that one lane reads at once when it transposes in registers; they become the same place
/// of as many operands, so that output column `m` of operand i is element kWide * m + i.
template <class Tile, class P>
inline constexpr int kInterleave =
    kTranspose == Transpose::in_registers ? at_most(Tile::kDim / P::kColumns, 8) : 1;

/// Reads `columns` operands whose depth runs down the tile's rows: outputs = weights x values. Depths of a
/// step are in the order in which results become operands; see mma.hpp.
template <class Tile, class P> struct ColumnReader {
  using T = typename Tile::T;
  using Operand = typename P::Operand;
  static constexpr int kOperands = Tile::kDim / P::kColumns;
  static constexpr int kWide = kInterleave<Tile, P>;

  /// Of what this lane reads of operand 0, step 0, from the tile's start on, where reads transpose matrices.
  static ROCADE_DEVICE u32 first() {
    const u32 row = lane_id() % 16;
    return row * Tile::kRowBytes + Tile::Rearranged::chunk(row, lane_id() / 16) * kChunk;
  }

  /// use(i, operand) for all operands of depth step t: rows kDepth * t + ... `own` is `first()`.
  template <class F> static ROCADE_DEVICE void each_operand(LdsBytes tile, u32 own, int t, F&& use) {
    const LdsBytes from = tile + t * (P::kDepth * Tile::kRowBytes);
    if constexpr (kTranspose == Transpose::quads)
      read_quads(from, use);
    else if constexpr (kTranspose == Transpose::matrices)
      read_matrices(tile + own, t, use);
    else
      read_in_registers(from, use);
  }

  /// Element of a row that column m of operand i is.
  static ROCADE_DEVICE int element(int i, int m) {
    return i / kWide * (kWide * P::kColumns) + kWide * m + i % kWide;
  }

private:
  // Lanes of a group hold depths 4 * group + 0..3 of both halves of the step.
  template <class F> static ROCADE_DEVICE void read_quads(LdsBytes from, F&& use) {
    const int row = 4 * P::group() + lane() % 16 / 4;
    ROCADE_FOR (i, kOperands) {
      const int chunk = i * (P::kColumns / 8) + lane() % P::kColumns / 16 * 2 + lane() % 4 / 2;
      const LdsBytes at =
          from + row * Tile::kRowBytes + Tile::Rearranged::chunk(row, chunk) * kChunk + lane() % 2 * 8;
      Operand operand;
      operand.lo = read_transposed<Vector<T, 4>>(at);
      operand.hi = read_transposed<Vector<T, 4>>(at + P::kDepth / 2 * Tile::kRowBytes);
      use(i, operand);
    }
  }

  // Operands only change other bits of the chunk than lanes do. Each is read before the one before is used.
  template <class F> static ROCADE_DEVICE void read_matrices(LdsBytes from, int t, F&& use) {
    const auto read = [&](int i) ROCADE_INLINED {
      return read_transposed<Operand>(flipped(from, static_cast<u32>(i) * (2 * kChunk)) +
                                      t * (P::kDepth * Tile::kRowBytes));
    };
    Operand operand = read(0);
    ROCADE_FOR (i, kOperands) {
      const Operand next = i + 1 < kOperands ? read(i + 1) : operand;
      use(i, operand);
      operand = next;
    }
  }

  template <class F> static ROCADE_DEVICE void read_in_registers(LdsBytes from, F&& use) {
    using Wide = Vector<u32, kWide / 2>;
    const LdsBytes at = from + 4 * P::group() * Tile::kRowBytes + lane() % P::kColumns * (kWide * 2);
    ROCADE_FOR (block, kOperands / kWide) {
      Wide rows[8];
      ROCADE_FOR (j, 8)
        rows[j] = read_lds<Wide>(at + (j / 4 * (P::kDepth / 2) + j % 4) * Tile::kRowBytes +
                                 block * (kWide * P::kColumns * 2));
      ROCADE_FOR (w, kWide / 2) {
        Vector<u32, 4> low, high;
        ROCADE_FOR (pair, 4) {
          const u32 first = rows[2 * pair][w], second = rows[2 * pair + 1][w];
          low[pair] = low_halves(first, second);
          high[pair] = high_halves(first, second);
        }
        use(block * kWide + 2 * w, bits_as<Operand>(low));
        use(block * kWide + 2 * w + 1, bits_as<Operand>(high));
      }
    }
  }
};

/// Operands of a wave that stay the same: in registers, or (`kRest`) in LDS where registers are scarce. A
/// lane reads what it wrote itself: kStride bytes lie between its operands.
template <class P, int kTiles, int kSteps, bool kRest, int kStride> struct RestingOperands {
  static constexpr int kBytes = 0;
  typename P::Operand held[kTiles][kSteps];

  ROCADE_DEVICE explicit RestingOperands(LdsBytes) {}
  ROCADE_DEVICE void set(int m, int s, typename P::Operand x) { held[m][s] = x; }
  ROCADE_DEVICE typename P::Operand get(int m, int s) const { return held[m][s]; }
};

template <class P, int kTiles, int kSteps, int kStride>
struct RestingOperands<P, kTiles, kSteps, true, kStride> {
  static constexpr int kBytes = kTiles * kSteps * kStride; // of all waves
  LdsBytes lds;

  ROCADE_DEVICE explicit RestingOperands(LdsBytes first) : lds(first) {}
  ROCADE_DEVICE void set(int m, int s, typename P::Operand x) const { write_lds(at(m, s), x); }
  ROCADE_DEVICE typename P::Operand get(int m, int s) const {
    return read_lds<typename P::Operand>(at(m, s));
  }

private:
  ROCADE_DEVICE LdsBytes at(int m, int s) const { return lds + (m * kSteps + s) * kStride; }
};

} // namespace rocade

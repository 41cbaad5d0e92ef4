// The products that tiles are made of, on every GPU in one form, and where lanes hold their parts.
//
// A product is result[row][column] += sum over depth of rows[row][depth] * columns[column][depth]: logits are
// queries times keys, outputs are weights times transposed values. A row of a result lies in few lanes, so
// that softmax needs little exchange: AMD's A and B are `columns` and `rows`, its transposed result has one
// row a lane.
//
// Every operand is 8 elements a lane. Results become operands of the next product as they are: registers
// 8 t to 8 t + 7 of the results of all columns are the `rows` operand of depth step t. On AMD they stand for
// depths in an order of their own, which `columns` operands that are read transposed have, too.
#pragma once
#include "types.hpp"
#if defined(__AMDGCN__)
#include "lanes_amd.hpp"
#include "mma_amd.hpp"
#else
#include "lanes_nvidia.hpp"
#include "mma_nvidia.hpp"
#endif

namespace rocade {

ROCADE_DEVICE int lane() { return static_cast<int>(lane_id()); }

#if defined(__AMDGCN__)

/// kSize is 32 (depth 16) or 16 (depth 32): rows and columns of the result. On gfx942 two instructions make
/// one.
template <class Element, int kSize> struct Product {
  using T = Element;
  static constexpr int kRows = kSize, kColumns = kSize, kDepth = 512 / kSize;
  static constexpr int kGroups = 64 / kSize;          // lanes that share a row
  static constexpr int kLaneRows = 1;                 // rows that a lane has results of
  static constexpr int kResults = kSize * kSize / 64; // registers of a result
  static constexpr int kRun = 4;                      // registers that are neighbouring columns
  static constexpr int kPieces = 1, kPiece = 8;       // a `rows` operand: pieces of neighbouring depths

  using Operand = Vector<T, 8>;
  using Result = Vector<float, kResults>;

  static ROCADE_DEVICE int group() { return lane() / kSize; }
  /// Row k of those that a lane has results of.
  static ROCADE_DEVICE int row(int) { return lane() % kSize; }
  static constexpr int kSums = 2; // of the weights of a row in a lane: packed additions
  /// Which of its rows register r of a result belongs to, and its column.
  static constexpr int row_of(int) { return 0; }
  static ROCADE_DEVICE int column(int r) { return offset(r) + 4 * group(); }
  /// Columns from register 0 to register r: the same in all lanes.
  static constexpr int offset(int r) { return 4 * kGroups * (r / 4) + r % 4; }
  /// Which of its rows piece p of a `rows` operand belongs to, and its first depth.
  static constexpr int piece_row(int) { return 0; }
  static ROCADE_DEVICE int piece_depth(int) { return 8 * group(); }
  /// Whether this lane is the first of those that share its rows.
  static ROCADE_DEVICE bool leads() { return group() == 0; }
  /// Which 16 bytes a lane reads for a `columns` operand: of which column, and which of that column's.
  static ROCADE_DEVICE int read_column(int lane) { return lane % kSize; }
  static ROCADE_DEVICE int read_chunk(int lane) { return lane / kSize; }

  static ROCADE_DEVICE void multiply(Result& result, Operand rows, Operand columns) {
#if defined(__gfx950__)
    result = Mfma<T, kSize, kDepth>::run(columns, rows, result);
#else
    using Half = Mfma<T, kSize, kDepth / 2>;
    result = Half::run(columns.lo, rows.lo, result);
    result = Half::run(columns.hi, rows.hi, result);
#endif
  }

  /// f over the lanes that share a row; all of them get the result.
  template <class F> static ROCADE_DEVICE float over_row(float x, F&& f) {
    if constexpr (kGroups == 4)
      x = fold<16>(x, f);
    return fold<32>(x, f);
  }
};

#else

/// Two mma.m16n8k16 side by side: 16 rows, 16 columns, depth 16.
template <class Element, int kSize> struct Product {
  static_assert(kSize == 16);
  using T = Element;
  static constexpr int kRows = 16, kColumns = 16, kDepth = 16;
  static constexpr int kLaneRows = 2, kResults = 8, kRun = 2, kPieces = 4, kPiece = 2, kSums = 1;

  using Operand = Vector<T, 8>;
  using Result = Vector<float, 8>;

  static ROCADE_DEVICE int row(int k) { return lane() / 4 + 8 * k; }
  static constexpr int row_of(int r) { return r / 2 % 2; }
  static ROCADE_DEVICE int column(int r) { return offset(r) + 2 * (lane() % 4); }
  static constexpr int offset(int r) { return 8 * (r / 4) + r % 2; }
  static constexpr int piece_row(int p) { return p % 2; }
  static ROCADE_DEVICE int piece_depth(int p) { return 2 * (lane() % 4) + 8 * (p / 2); }
  static ROCADE_DEVICE bool leads() { return lane() % 4 == 0; }
  static ROCADE_DEVICE int read_column(int lane) { return lane / 16 * 8 + lane % 8; }
  static ROCADE_DEVICE int read_chunk(int lane) { return lane / 8 % 2; }

  static ROCADE_DEVICE void multiply(Result& result, Operand rows, Operand columns) {
    result.lo = Mma16x8x16<T>::run(rows, columns.lo, result.lo);
    result.hi = Mma16x8x16<T>::run(rows, columns.hi, result.hi);
  }

  template <class F> static ROCADE_DEVICE float over_row(float x, F&& f) {
    x = f(x, shuffle_xor(x, 1));
    return f(x, shuffle_xor(x, 2));
  }
};

#endif

} // namespace rocade

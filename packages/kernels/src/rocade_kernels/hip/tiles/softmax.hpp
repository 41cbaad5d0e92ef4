// Online softmax of tiles of logits in registers: largest logit, weights, their sum, in base 2.
//
// Weights are taken relative to `base`, which follows the largest logit only when that rises by more than a
// factor of 2^kSlack: sums and outputs stay exact multiples of each other, and most tiles need no rescaling.
// Weights are then at most 2^kSlack, which fp16 holds, and sums stay in fp32.
#pragma once
#include "tiles/shared.hpp"

namespace rocade {

inline constexpr float kSlack = 8;

/// Rows of `kTiles` results over `kColumnTiles` results each: logits of one wave.
template <class P, int kTiles, int kColumnTiles> struct RegisterTile {
  typename P::Result part[kTiles][kColumnTiles];

  ROCADE_DEVICE void clear() {
    ROCADE_FOR (m, kTiles)
      ROCADE_FOR (n, kColumnTiles)
        part[m][n] = typename P::Result{};
  }
};

/// State of the softmax of the rows that a lane has parts of. A row's lanes agree on all but `sum`.
template <class P, int kTiles> struct Softmax {
  using Pair = Vector<float, 2>;
  static constexpr int kRows = kTiles * P::kLaneRows;
  static_assert(P::kRun % 2 == 0, "pairs of registers belong to one row");

  using Sum = Vector<float, P::kSums>;
  float base[kRows]; // what weights are relative to, log2; -inf before the first visible key
  Sum sum[kRows];    // of the lane's own weights

  ROCADE_DEVICE Softmax() {
    ROCADE_FOR (k, kRows)
      base[k] = kNegativeInfinity, sum[k] = Sum{};
  }

  /// What is subtracted from logits: 0 for rows without a visible key, so that exp2(-inf - 0) is 0.
  ROCADE_DEVICE float shift(int k) const { return base[k] == kNegativeInfinity ? 0.0f : base[k]; }

  /// Follows the largest logits, `scale` times those of `logits` in log2; rescales outputs where it must.
  template <int kColumnTiles, int kOutputs>
  ROCADE_DEVICE void follow(const RegisterTile<P, kTiles, kColumnTiles>& logits, float scale,
                            RegisterTile<P, kTiles, kOutputs>& outputs) {
    float top[kRows];
    bool rises = false;
    ROCADE_FOR (k, kRows) {
      top[k] =
          P::over_row(largest(logits, k), [](float a, float b) { return __builtin_fmaxf(a, b); }) * scale;
      rises |= top[k] > base[k] + kSlack;
    }
    if (any_lane(rises))
      rescale(top, outputs);
  }

  /// Turns logits into weights, and adds them up.
  template <int kColumnTiles>
  ROCADE_DEVICE void weigh(RegisterTile<P, kTiles, kColumnTiles>& logits, float scale) {
    ROCADE_FOR (m, kTiles)
      ROCADE_FOR (n, kColumnTiles)
        ROCADE_FOR_BY (r, P::kResults, 2) {
          const int k = m * P::kLaneRows + P::row_of(r);
          Pair x = {logits.part[m][n][r], logits.part[m][n][r + 1]};
          x = __builtin_elementwise_fma(x, Pair(scale), Pair(-shift(k)));
          x.x = exp2(x.x);
          x.y = exp2(x.y);
          if constexpr (P::kSums == 2)
            sum[k] += x;
          else
            sum[k] += x.x + x.y;
          logits.part[m][n][r] = x.x;
          logits.part[m][n][r + 1] = x.y;
        }
  }

  /// Sum of a row's weights over its lanes.
  ROCADE_DEVICE float total(int k) const {
    float own = sum[k][0];
    if constexpr (P::kSums == 2)
      own += sum[k][1];
    return P::over_row(own, [](float a, float b) { return a + b; });
  }

private:
  template <int kColumnTiles>
  static ROCADE_DEVICE float largest(const RegisterTile<P, kTiles, kColumnTiles>& logits, int k) {
    float top = kNegativeInfinity;
    ROCADE_FOR (n, kColumnTiles)
      ROCADE_FOR (r, P::kResults)
        if (P::row_of(r) == k % P::kLaneRows)
          top = __builtin_fmaxf(top, logits.part[k / P::kLaneRows][n][r]);
    return top;
  }

  template <int kOutputs>
  ROCADE_DEVICE void rescale(const float (&top)[kRows], RegisterTile<P, kTiles, kOutputs>& outputs) {
    float factor[kRows];
    ROCADE_FOR (k, kRows) {
      const float before = base[k];
      base[k] =
          top[k] > before + kSlack ? top[k] : before; // row by row: a row's bits do not depend on others
      factor[k] = before == base[k] ? 1.0f : exp2(before - base[k]);
      sum[k] *= factor[k];
    }
    ROCADE_FOR (m, kTiles)
      ROCADE_FOR (i, kOutputs)
        ROCADE_FOR (r, P::kResults)
          outputs.part[m][i][r] *= factor[m * P::kLaneRows + P::row_of(r)];
  }
};

} // namespace rocade

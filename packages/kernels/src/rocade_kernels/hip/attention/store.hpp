// What becomes of an item's outputs: states of several waves become one, then a partial or a final result.
#pragma once
#include "attention/rows.hpp"
#include "compensated.hpp"
#include "log2_sum.hpp"
#include "tiles/shared.hpp"
#include "tiles/softmax.hpp"

namespace rocade {

/// Hands the state of a wave to another one through LDS: register by register, lanes side by side.
template <class P, int kLaneRows, int kRowTiles, int kOutTiles> struct StateExchange {
  static constexpr int kOutputs = kRowTiles * kOutTiles * P::kResults;
  static constexpr int kBytes = (2 * kLaneRows + kOutputs) * kWave * 4;
  using Output = RegisterTile<P, kRowTiles, kOutTiles>;

  static ROCADE_DEVICE LdsBytes place(LdsBytes lds, int index) { return lds + (index * kWave + lane()) * 4; }
  static constexpr int index(int m, int i, int r) {
    return 2 * kLaneRows + (m * kOutTiles + i) * P::kResults + r;
  }

  static ROCADE_DEVICE void leave(LdsBytes lds, const float (&base)[kLaneRows],
                                  const float (&total)[kLaneRows], const Output& output) {
    ROCADE_FOR (k, kLaneRows) {
      write_lds(place(lds, 2 * k), base[k]);
      write_lds(place(lds, 2 * k + 1), total[k]);
    }
    ROCADE_FOR (m, kRowTiles)
      ROCADE_FOR (i, kOutTiles)
        ROCADE_FOR (r, P::kResults) {
          const float x = output.part[m][i][r];
          write_lds(place(lds, index(m, i, r)), x);
        }
  }

  static ROCADE_DEVICE void merge(LdsBytes lds, float (&base)[kLaneRows], float (&total)[kLaneRows],
                                  Output& output) {
    float own[kLaneRows], other[kLaneRows];
    ROCADE_FOR (k, kLaneRows) {
      const float their_base = read_lds<float>(place(lds, 2 * k));
      const float their_total = read_lds<float>(place(lds, 2 * k + 1));
      const float top = __builtin_fmaxf(base[k], their_base);
      const float shift = top == kNegativeInfinity ? 0.0f : top;
      own[k] = exp2(base[k] - shift);
      other[k] = exp2(their_base - shift);
      base[k] = top;
      total[k] = total[k] * own[k] + their_total * other[k];
    }
    ROCADE_FOR (m, kRowTiles)
      ROCADE_FOR (i, kOutTiles)
        ROCADE_FOR (r, P::kResults) {
          const int k = m * P::kLaneRows + P::row_of(r);
          const float x = read_lds<float>(place(lds, index(m, i, r)));
          output.part[m][i][r] = output.part[m][i][r] * own[k] + x * other[k];
        }
  }
};

/// Stores rows of outputs.
template <class S> struct Results {
  using T = typename S::T;
  using P = typename S::P;
  using Reader = ColumnReader<typename S::ValueTile, P>;
  static constexpr int kWide = Reader::kWide, kRun = P::kRun * kWide; // elements of a lane side by side
  static constexpr int kStore = kRun < 8 ? kRun : 8; // of them at once: head_dim is whole eights
  static constexpr float kNone = kNegativeInfinity;

  const Args& args;
  const Rows& rows;

  ROCADE_DEVICE Results(const Args& a, const Rows& r) : args(a), rows(r) {}

  /// Row k of a lane, its weights' sum and what they are relative to (log2).
  template <int k>
  ROCADE_DEVICE void store(u32 row, float base, float total, const typename S::Output& output) const {
    // Weights that vanish although a key was visible make NaN, not the result of no key.
    const bool none = total == 0 && base == kNone;
    const float own = none ? 0.0f : reciprocal(total) * args.out_scale;
    float lse = none ? kNone : poisoned_by(total, base + log2_sum(total));
    if (rows.item.state >= 0) {
      const u64 place = static_cast<u64>(rows.item.state) * args.group + rows.packed(row);
      float* to = static_cast<float*>(args.partial_out) + place * args.head_dim;
      each_run(k, output, [&](u32 d, Vector<float, kStore> x) ROCADE_INLINED { put(to + d, x * own); });
      if (P::leads())
        static_cast<float*>(args.partial_lse)[place] = lse;
      return;
    }
    T* to = static_cast<T*>(args.out) + rows.place(row, args.out_row, args.out_head);
    if (args.state_out != nullptr)
      store_merged(row, k, own, lse, to, output);
    else
      each_run(k, output, [&](u32 d, Vector<float, kStore> x) ROCADE_INLINED {
        put(to + d, rounded<T, kStore>(x * own));
      });
    if (args.lse != nullptr && P::leads())
      static_cast<float*>(args.lse)[rows.place(row, args.lse_row, args.lse_head)] = lse;
  }

private:
  template <class V> static ROCADE_DEVICE void put(void* to, V x) { *static_cast<V*>(to) = x; }

  // f(first element, values) for all runs of row k that are part of the head.
  template <class F> ROCADE_DEVICE void each_run(int k, const typename S::Output& output, F&& f) const {
    if (args.head_dim == S::kDim)
      each_run_within(k, output, [&](u32 d, Vector<float, kStore> x) ROCADE_INLINED { f(d, x); });
    else
      each_run_within(k, output, [&](u32 d, Vector<float, kStore> x) ROCADE_INLINED {
        if (d < args.head_dim)
          f(d, x);
      });
  }

  template <class F>
  ROCADE_DEVICE void each_run_within(int k, const typename S::Output& output, F&& f) const {
    const int m = k / P::kLaneRows;
    ROCADE_FOR_BY (i, S::kOutTiles, kWide)
      ROCADE_FOR_BY (r, P::kResults, P::kRun) {
        if (P::row_of(r) != k % P::kLaneRows)
          continue;
        ROCADE_FOR_BY (e, kRun, kStore) {
          Vector<float, kStore> x;
          ROCADE_FOR (j, kStore)
            x[j] = output.part[m][i + (e + j) % kWide][r + (e + j) / kWide];
          f(static_cast<u32>(Reader::element(i, P::column(r)) + e), x);
        }
      }
  }

  // The state's values count by its lse; a state of no weight may hold anything, NaN included.
  ROCADE_DEVICE void store_merged(u32 row, int k, float own, float& lse, T* to,
                                  const typename S::Output& output) const {
    const T* state = static_cast<const T*>(args.state_out) + rows.place(row, args.state_row, args.state_head);
    const float other_lse =
        static_cast<const float*>(args.state_lse)[rows.place(row, args.state_lse_row, args.state_lse_head)];
    const float top = __builtin_fmaxf(lse, other_lse);
    const float shift = top == kNone ? 0.0f : top;
    const float a = exp2(lse - shift), b = exp2(other_lse - shift), sum = a + b;
    const float inverse = sum == 0 ? 0.0f : reciprocal(sum);
    lse = sum == 0 ? kNone : poisoned_by(sum, top + log2_sum(sum));
    each_run(k, output, [&](u32 d, Vector<float, kStore> x) ROCADE_INLINED {
      Vector<float, kStore> y = {};
      if (b != 0)
        y = widen<T, kStore>(*reinterpret_cast<const Vector<T, kStore>*>(state + d));
      put(to + d, rounded<T, kStore>(x * (own * a * inverse) + y * (b * inverse)));
    });
  }
};

} // namespace rocade

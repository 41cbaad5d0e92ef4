// Tile operations on K and V rows in place: a few queries against many keys, bound by memory.
#pragma once
#include "key_tile.hpp"
#include "state.hpp"

namespace rk::RK_ISA_NAMESPACE {

constexpr int kLineBytes = 64;

RK_INLINE void prefetch_row(const char* row, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += kLineBytes)
    prefetch(row + b);
}

// Rows to prefetch one by one while others are used; none by default.
struct Ahead {
  const char* const* rows = nullptr; // of head 0
  const int64_t* head_stride = nullptr;
  int64_t head = 0;
  int64_t bytes = 0; // of a row
  int count = 0;

  RK_INLINE void fetch(int j) const {
    if (j < count)
      prefetch_row(rows[j] + head * head_stride[j], bytes);
  }
};

template <class T> RK_INLINE Vec load_row(const char* row, int64_t d) {
  return load(reinterpret_cast<const T*>(row) + d);
}

// s[i][j] = q_i . k_j for Q queries and kLanes / Q keys: kLanes sums in registers, then one exchange across
// lanes.
template <int Q, class T>
RK_INLINE void dot_block(const float* q, int64_t q_stride, const char* const* keys, int64_t dim, float* s,
                         int64_t s_stride) {
  constexpr int K = kLanes / Q;
  Vec acc[kLanes] = {};
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    Vec query[Q];
#pragma GCC unroll 16
    for (int i = 0; i < Q; ++i)
      query[i] = load(q + i * q_stride + d);
#pragma GCC unroll 16
    for (int j = 0; j < K; ++j) {
      const Vec key = load_row<T>(keys[j], d);
#pragma GCC unroll 16
      for (int i = 0; i < Q; ++i)
        acc[i * K + j] += query[i] * key;
    }
  }
  if (d < dim)
#pragma GCC unroll 16
    for (int j = 0; j < K; ++j) {
      const Vec key = load_first(reinterpret_cast<const T*>(keys[j]) + d, static_cast<int>(dim - d));
#pragma GCC unroll 16
      for (int i = 0; i < Q; ++i)
        acc[i * K + j] += load(q + i * q_stride + d) * key;
    }
  float sums[kLanes];
  store(sums, sum_each(acc));
  for (int i = 0; i < Q; ++i)
    memcpy(s + i * s_stride, sums + i * K, K * sizeof(float));
}

// Accumulators of rows: value + lost of each, see add_to.
struct Sums {
  float *value, *lost;
  int64_t stride; // of rows

  RK_INLINE Sums from(int64_t row) const { return {value + row * stride, lost + row * stride, stride}; }
  RK_INLINE void add(int64_t row, int64_t d, float keep, Vec x) const {
    add_at(value + row * stride + d, lost + row * stride + d, keep, x);
  }
};

// o_i[d:d + S * kLanes] = keep_i * o_i + sum over j of p[i][j] * v_j, for Q rows. The tile is summed by
// itself: each term added to the sum of a million keys would be rounded to that sum's last place.
template <int Q, int S, class T>
RK_INLINE void weigh_strip(const float* p, int64_t p_stride, const char* const* values, int count,
                           const float* keep, int64_t d, const Sums& o, const Ahead& ahead) {
  Vec acc[Q][S] = {};
  for (int j = 0; j < count; ++j) {
    ahead.fetch(j);
    Vec value[S];
#pragma GCC unroll 16
    for (int v = 0; v < S; ++v)
      value[v] = load_row<T>(values[j], d + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Q; ++i) {
      const Vec weight = splat(p[i * p_stride + j]);
#pragma GCC unroll 16
      for (int v = 0; v < S; ++v)
        acc[i][v] += weight * value[v];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < S; ++v)
      o.add(i, d + v * kLanes, keep[i], acc[i][v]);
}

// The same for all of a row, and for the tail of a dimension that is no multiple of kLanes. The rows `ahead`
// (may be null) are prefetched one by one during the first strip.
template <int Q, class T>
RK_INLINE void weigh_rows(const float* p, int64_t p_stride, const char* const* values, int count,
                          const float* keep, int64_t dim, const Sums& o, const Ahead& ahead) {
  constexpr int kStrip = kRegisters >= 32 ? 4 : 2;
  int64_t d = 0;
  for (; d + kStrip * kLanes <= dim; d += kStrip * kLanes)
    weigh_strip<Q, kStrip, T>(p, p_stride, values, count, keep, d, o, d == 0 ? ahead : Ahead{});
  for (; d + kLanes <= dim; d += kLanes)
    weigh_strip<Q, 1, T>(p, p_stride, values, count, keep, d, o, d == 0 ? ahead : Ahead{});
  if (d == dim)
    return;
  for (int i = 0; i < Q; ++i) {
    Vec acc{};
    for (int j = 0; j < count; ++j)
      acc += splat(p[i * p_stride + j]) *
             load_first(reinterpret_cast<const T*>(values[j]) + d, static_cast<int>(dim - d));
    o.add(i, d, keep[i], acc);
  }
}

// True when some value is infinite or NaN: then a weight of zero does not hide it.
template <class T> inline bool any_not_finite(const char* const* values, int count, int64_t dim) {
  Vec poison{};
  for (int j = 0; j < count; ++j) {
    const T* row = reinterpret_cast<const T*>(values[j]);
    int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes)
      poison += load(row + d) * 0.0f;
    if (d < dim)
      poison += load_first(row + d, static_cast<int>(dim - d)) * 0.0f;
  }
  return sum_lanes(poison) != 0.0f; // NaN compares unequal
}

// Like weigh_rows for one row, but a key of weight zero is not touched.
template <class T>
inline void weigh_seen(const float* p, const char* const* values, int count, float keep, int64_t dim,
                       const Sums& o) {
  for (int64_t d = 0; d < dim; d += kLanes) {
    const int lanes = dim - d < kLanes ? static_cast<int>(dim - d) : kLanes;
    Vec total{};
    for (int first = 0; first < count; first += kChain) {
      Vec acc{};
      for (int j = first; j < count && j < first + kChain; ++j)
        if (p[j] != 0.0f)
          acc += p[j] * load_first(reinterpret_cast<const T*>(values[j]) + d, lanes);
      total += acc;
    }
    o.add(0, d, keep, total);
  }
}

} // namespace rk::RK_ISA_NAMESPACE

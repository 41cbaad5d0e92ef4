// Attention of a few rows, K and V read once where they lie: decode and short queries.
#pragma once
#include "dot_tile.hpp"
#include "tile_mask.hpp"

namespace rk::RK_ISA_NAMESPACE {

// Keys a tile: K and V of one head take 32 KiB at dimension 128, the first-level cache, whatever the storage.
template <class T> constexpr int kRowTile = 128 / static_cast<int>(sizeof(T));
constexpr int kMaxRowTile = kRowTile<Fp16>;

// Scratch memory of one item: m rows (row x group head) for each of `heads` KV heads.
struct RowScratch {
  int64_t q_dim, o_dim; // padded to whole vectors
  float *q, *o, *lost, *s, *keep;
  RowState* states;
  char* zeros; // stands in for rows outside the pool
  int64_t bytes;

  RowScratch(const Shape& shape, int64_t m, int64_t heads, void* base)
      : q_dim(round_up(shape.dim_qk, kLanes)), o_dim(round_up(shape.dim_vo, kLanes)) {
    Carver carver(base);
    q = carver.take(heads * m * q_dim);
    o = carver.take(heads * m * o_dim);
    lost = carver.take(heads * m * o_dim);
    s = carver.take(m * kMaxRowTile);
    keep = carver.take(m);
    states = carver.take<RowState>(heads * m);
    zeros = carver.take<char>((q_dim > o_dim ? q_dim : o_dim) * static_cast<int64_t>(sizeof(float)));
    bytes = carver.used();
  }
};

// Calls f with the widest of 4, 2, 1 that fits the rows left, as a constant.
template <class F> RK_INLINE void by_blocks(int64_t m, F f) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4)
    f(i, Constant<4>{});
  if (i + 2 <= m)
    f(i, Constant<2>{}), i += 2;
  if (i < m)
    f(i, Constant<1>{});
}

// One item: rows of a unit x KV heads of a block.
template <class T> class RowAttention {
  static constexpr int kTile = kRowTile<T>;
  using RowTile = KeyTile<kTile>;

public:
  RowAttention(const Run& run, const Item& item, void* scratch)
      : run_(run), shape_(run.plan->shape), unit_(run.plan->units[item.unit]), mask_(run, unit_),
        transform_(run), first_head_(item.head), heads_(clamp(shape_.kv_heads - item.head, 0, unit_.heads)),
        m_((unit_.row_end - unit_.row_begin) * shape_.group), mem_(shape_, m_, heads_, scratch) {}

  void attend() {
    load_queries();
    RowTile tiles[2];
    int32_t key = unit_.key_begin;
    read(key, tiles[0]);
    for (int now = 0; key < unit_.key_end; now ^= 1) {
      key += tiles[now].count;
      read(key, tiles[now ^ 1]);
      for (int64_t h = 0; h < heads_; ++h)
        attend_tile(tiles[now], tiles[now ^ 1], h);
    }
    finish();
  }

private:
  // Rows of one KV head, null replaced.
  struct HeadRows {
    const char *k[kTile], *v[kTile];
  };

  int64_t row_of(int64_t m) const { return unit_.row_begin + m / shape_.group; }
  int64_t head_of(int64_t h, int64_t m) const { return (first_head_ + h) * shape_.group + m % shape_.group; }

  void load_queries() {
    memset(mem_.zeros, 0,
           static_cast<size_t>(mem_.q_dim > mem_.o_dim ? mem_.q_dim : mem_.o_dim) * sizeof(float));
    memset(mem_.o, 0, static_cast<size_t>(heads_ * m_ * mem_.o_dim) * sizeof(float));
    memset(mem_.lost, 0, static_cast<size_t>(heads_ * m_ * mem_.o_dim) * sizeof(float));
    const float scale = transform_.query_scale(run_);
    for (int64_t h = 0; h < heads_; ++h)
      for (int64_t i = 0; i < m_; ++i) {
        load_query(run_, row_of(i), head_of(h, i), scale, mem_.q + (h * m_ + i) * mem_.q_dim, mem_.q_dim);
        mem_.states[h * m_ + i] = {kNegativeInfinity, 0.0f};
      }
  }

  void read(int32_t key, RowTile& tile) const {
    const int32_t left = unit_.key_end - key;
    read_tile(run_, &run_.plan->nodes[unit_.node], key, left < kTile ? left : kTile, sizeof(T), tile);
  }

  HeadRows rows_of(const RowTile& tile, int64_t h) const {
    HeadRows rows;
    for (int j = 0; j < kTile; ++j) {
      const bool present = j < tile.count && tile.k[j] != nullptr;
      rows.k[j] = present ? tile.k[j] + (first_head_ + h) * tile.k_head[j] : mem_.zeros;
      rows.v[j] = present ? tile.v[j] + (first_head_ + h) * tile.v_head[j] : mem_.zeros;
    }
    return rows;
  }

  void attend_tile(const RowTile& tile, const RowTile& next, int64_t h) {
    const HeadRows rows = rows_of(tile, h);
    score(rows, next, h, tile.count, mem_.q + h * m_ * mem_.q_dim);
    const int padded = static_cast<int>(round_up(tile.count, kLanes));
    bool hidden = false;
    for (int64_t i = 0; i < m_; ++i) {
      float* s = mem_.s + i * kTile;
      if (transform_.active())
        transform_.apply(s, padded, slope(h, i), tile.first - int64_t{run_.plan->row_position[row_of(i)]});
      const bool all = mask_.sees_all(row_of(i), tile);
      if (!all || padded != tile.count)
        mask_.hide(row_of(i), tile, s, padded);
      hidden |= !all;
      mem_.keep[i] = softmax_row(s, padded, mem_.states[h * m_ + i]);
    }
    const Sums o = Sums{mem_.o, mem_.lost, mem_.o_dim}.from(h * m_);
    if (hidden && any_not_finite<T>(rows.v, tile.count, shape_.dim_vo))
      for (int64_t i = 0; i < m_; ++i)
        weigh_seen<T>(mem_.s + i * kTile, rows.v, tile.count, mem_.keep[i], shape_.dim_vo, o.from(i));
    else
      weigh(rows, next, h, tile.count, o);
  }

  float slope(int64_t h, int64_t m) const {
    return transform_.alibi ? run_.plan->slopes[head_of(h, m)] : 0.0f;
  }

  // Logits of a tile. The next tile's K rows are on their way while this one's are multiplied.
  void score(const HeadRows& rows, const RowTile& next, int64_t h, int count, const float* q) {
    const Ahead ahead{next.k, next.k_head, first_head_ + h, shape_.dim_qk * int64_t{sizeof(T)}, next.count};
    by_blocks(m_, [&](int64_t i, auto block) {
      constexpr int Q = decltype(block)::value;
      constexpr int K = kLanes / Q;
      for (int j = 0; j < count; j += K) {
        if (i == 0)
          for (int a = j; a < j + K; ++a)
            ahead.fetch(a);
        dot_block<Q, T>(q + i * mem_.q_dim, mem_.q_dim, rows.k + j, shape_.dim_qk, mem_.s + i * kTile + j,
                        kTile);
      }
    });
  }

  // Adds the weighted V rows. The next tile's V rows come in while the first strip is read.
  void weigh(const HeadRows& rows, const RowTile& next, int64_t h, int count, const Sums& o) {
    const Ahead ahead{next.v, next.v_head, first_head_ + h, shape_.dim_vo * int64_t{sizeof(T)}, next.count};
    by_blocks(m_, [&](int64_t i, auto block) {
      constexpr int Q = decltype(block)::value;
      weigh_rows<Q, T>(mem_.s + i * kTile, kTile, rows.v, count, mem_.keep + i, shape_.dim_vo, o.from(i),
                       i == 0 ? ahead : Ahead{});
    });
  }

  void finish() {
    for (int64_t h = 0; h < heads_; ++h)
      for (int64_t i = 0; i < m_; ++i)
        finish_row(run_, unit_, row_of(i), head_of(h, i), mem_.states[h * m_ + i],
                   mem_.o + (h * m_ + i) * mem_.o_dim, mem_.lost + (h * m_ + i) * mem_.o_dim);
  }

  const Run& run_;
  const Shape& shape_;
  const Unit& unit_;
  UnitMask mask_;
  Transform transform_;
  int64_t first_head_, heads_, m_;
  RowScratch mem_;
};

} // namespace rk::RK_ISA_NAMESPACE

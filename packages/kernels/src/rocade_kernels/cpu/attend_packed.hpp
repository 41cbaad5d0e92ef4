// Attention of many rows on packed tiles: prefill, and a prefix that many requests share.
#pragma once
#include "gemm_tile.hpp"
#include "tile_mask.hpp"

namespace rk::RK_ISA_NAMESPACE {

constexpr int kPackedTile = 128; // keys a tile

using PackedTile = KeyTile<kPackedTile>;

// Scratch memory of one item: m rows (row x group head) of one KV head, one packed tile of K and V.
struct PackedScratch {
  int64_t q_dim, o_dim;     // q rows, o rows (whole panels)
  int64_t k_panel, v_panel; // floats of one panel
  float *q, *o, *lost, *s, *keep, *k, *v;
  RowState* states;
  char* zeros;
  int64_t bytes;

  PackedScratch(const Shape& shape, int64_t m, void* base)
      : q_dim(round_up(shape.dim_qk, kLanes)), o_dim(round_up(shape.dim_vo, kPanel)),
        k_panel(shape.dim_qk * kPanel), v_panel(kPackedTile * kPanel) {
    Carver carver(base);
    q = carver.take(m * q_dim);
    o = carver.take(m * o_dim);
    lost = carver.take(m * o_dim);
    s = carver.take(m * kPackedTile);
    keep = carver.take(m);
    k = carver.take(kPackedTile / kPanel * k_panel);
    v = carver.take(o_dim / kPanel * v_panel);
    states = carver.take<RowState>(m);
    zeros = carver.take<char>((q_dim > o_dim ? q_dim : o_dim) * static_cast<int64_t>(sizeof(float)));
    bytes = carver.used();
  }
};

template <class T> class PackedAttention {
public:
  PackedAttention(const Run& run, const Item& item, void* scratch)
      : run_(run), shape_(run.plan->shape), unit_(run.plan->units[item.unit]), mask_(run, unit_),
        transform_(run), head_(item.head), m_((unit_.row_end - unit_.row_begin) * shape_.group),
        mem_(shape_, m_, scratch) {}

  void attend() {
    load_queries();
    PackedTile tiles[2];
    int32_t key = unit_.key_begin;
    read(key, tiles[0]);
    for (int now = 0; key < unit_.key_end; now ^= 1) {
      key += tiles[now].count;
      read(key, tiles[now ^ 1]);
      attend_tile(tiles[now], tiles[now ^ 1]);
    }
    for (int64_t i = 0; i < m_; ++i)
      finish_row(run_, unit_, row_of(i), head_of(i), mem_.states[i], mem_.o + i * mem_.o_dim,
                 mem_.lost + i * mem_.o_dim);
  }

private:
  int64_t row_of(int64_t m) const { return unit_.row_begin + m / shape_.group; }
  int64_t head_of(int64_t m) const { return head_ * shape_.group + m % shape_.group; }

  void load_queries() {
    memset(mem_.zeros, 0,
           static_cast<size_t>(mem_.q_dim > mem_.o_dim ? mem_.q_dim : mem_.o_dim) * sizeof(float));
    memset(mem_.o, 0, static_cast<size_t>(m_ * mem_.o_dim) * sizeof(float));
    memset(mem_.lost, 0, static_cast<size_t>(m_ * mem_.o_dim) * sizeof(float));
    const float scale = transform_.query_scale(run_);
    for (int64_t i = 0; i < m_; ++i) {
      load_query(run_, row_of(i), head_of(i), scale, mem_.q + i * mem_.q_dim, mem_.q_dim);
      mem_.states[i] = {kNegativeInfinity, 0.0f};
    }
  }

  // The rows that see something of the tile, first and last; the ones between may see nothing.
  struct Rows {
    int64_t begin, end;
  };
  Rows rows_that_see(const PackedTile& tile) const {
    const int64_t rows = unit_.row_end - unit_.row_begin;
    int64_t begin = 0, end = rows;
    while (begin < end && mask_.sees_none(unit_.row_begin + begin, tile))
      ++begin;
    while (end > begin && mask_.sees_none(unit_.row_begin + end - 1, tile))
      --end;
    return {begin * shape_.group, end * shape_.group};
  }

  void read(int32_t key, PackedTile& tile) const {
    const int32_t left = unit_.key_end - key;
    read_tile(run_, &run_.plan->nodes[unit_.node], key, left < kPackedTile ? left : kPackedTile, sizeof(T),
              tile);
  }

  // V comes in while K is multiplied, the next tile's K while V is.
  void attend_tile(const PackedTile& tile, const PackedTile& next) {
    const Rows rows = rows_that_see(tile);
    if (rows.begin == rows.end)
      return;
    const char *k[kPackedTile], *v[kPackedTile];
    for (int j = 0; j < tile.count; ++j) {
      k[j] = tile.k[j] == nullptr ? mem_.zeros : tile.k[j] + head_ * tile.k_head[j];
      v[j] = tile.v[j] == nullptr ? mem_.zeros : tile.v[j] + head_ * tile.v_head[j];
    }
    const int padded = static_cast<int>(round_up(tile.count, kPanel));
    pack_columns<T>(k, tile.count, shape_.dim_qk, mem_.k, mem_.k_panel);
    multiply(mem_.q + rows.begin * mem_.q_dim, mem_.q_dim, rows.end - rows.begin, mem_.k, padded / kPanel,
             mem_.k_panel, shape_.dim_qk, nullptr,
             Sums{mem_.s + rows.begin * kPackedTile, nullptr, kPackedTile},
             {tile.v, tile.v_head, head_, shape_.dim_vo * int64_t{sizeof(T)}, tile.count});
    const bool hidden = weigh_logits(rows, tile, padded);
    if (hidden && any_not_finite<T>(v, tile.count, shape_.dim_vo))
      return accumulate_seen(rows, tile, v);
    pack_rows<T>(v, tile.count, shape_.dim_vo, mem_.v, mem_.v_panel);
    multiply(mem_.s + rows.begin * kPackedTile, kPackedTile, rows.end - rows.begin, mem_.v,
             mem_.o_dim / kPanel, mem_.v_panel, tile.count, mem_.keep + rows.begin, sums().from(rows.begin),
             {next.k, next.k_head, head_, shape_.dim_qk * int64_t{sizeof(T)}, next.count});
  }

  // Logits to weights, row by row. True when some row does not see all of the tile.
  bool weigh_logits(Rows rows, const PackedTile& tile, int padded) {
    bool hidden = false;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      float* s = mem_.s + i * kPackedTile;
      if (transform_.active()) {
        const float slope = transform_.alibi ? run_.plan->slopes[head_of(i)] : 0.0f;
        transform_.apply(s, padded, slope, tile.first - int64_t{run_.plan->row_position[row_of(i)]});
      }
      const bool all = mask_.sees_all(row_of(i), tile);
      if (!all || padded != tile.count)
        mask_.hide(row_of(i), tile, s, padded);
      hidden |= !all;
      mem_.keep[i] = softmax_row(s, padded, mem_.states[i]);
    }
    return hidden;
  }

  void accumulate_seen(Rows rows, const PackedTile& tile, const char* const* v) {
    for (int64_t i = rows.begin; i < rows.end; ++i)
      weigh_seen<T>(mem_.s + i * kPackedTile, v, tile.count, mem_.keep[i], shape_.dim_vo, sums().from(i));
  }

  Sums sums() const { return {mem_.o, mem_.lost, mem_.o_dim}; }

  const Run& run_;
  const Shape& shape_;
  const Unit& unit_;
  UnitMask mask_;
  Transform transform_;
  int64_t head_, m_;
  PackedScratch mem_;
};

} // namespace rk::RK_ISA_NAMESPACE

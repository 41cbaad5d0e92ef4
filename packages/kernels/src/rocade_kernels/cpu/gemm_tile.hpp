// Tile operations as matrix products in registers: many queries against packed K and V, bound by arithmetic.
//
// A panel is `depth` rows of kPanel columns, contiguous, so that the inner loop reads one stream.
#pragma once
#include "dot_tile.hpp"

namespace rk::RK_ISA_NAMESPACE {

constexpr int kPanelVecs = 2;
constexpr int kPanel = kPanelVecs * kLanes;
// Rows of the register block: with kPanelVecs accumulators each they fill the registers but for two columns
// and a row.
constexpr int kBlockRows = (kRegisters - kPanelVecs - 2) / kPanelVecs > 12 ? 12 : 6;

// c = (keep ? keep_r * c_r : 0) + a b for R rows of a [R, depth] and one panel b. The product is summed by
// itself, see weigh_strip, and in chains short enough for equal terms. Without `keep`, c.lost is not used.
template <int R>
void multiply_block(const float* a, int64_t a_stride, const float* b, int64_t depth, const float* keep,
                    const Sums& c) {
  Vec sum[R][kPanelVecs] = {};
  for (int64_t d = 0; d < depth;) {
    Vec acc[R][kPanelVecs] = {};
    for (const int64_t end = depth - d < kChain ? depth : d + kChain; d < end; ++d, b += kPanel) {
      Vec column[kPanelVecs];
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVecs; ++v)
        column[v] = load(b + v * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec row = splat(a[r * a_stride + d]);
#pragma GCC unroll 16
        for (int v = 0; v < kPanelVecs; ++v)
          acc[r][v] += row * column[v];
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVecs; ++v)
        sum[r][v] += acc[r][v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVecs; ++v) {
      if (keep != nullptr)
        c.add(r, v * kLanes, keep[r], sum[r][v]);
      else
        store(c.value + r * c.stride + v * kLanes, sum[r][v]);
    }
}

using MultiplyBlock = void (*)(const float*, int64_t, const float*, int64_t, const float*, const Sums&);

template <int... R> constexpr auto multiply_blocks(Indices<R...>) {
  struct Table {
    MultiplyBlock of_rows[sizeof...(R)];
  };
  return Table{{multiply_block<R + 1>...}};
}
inline constexpr auto kMultiplyBlocks = multiply_blocks(MakeIndices<kBlockRows>::type{});

// c [rows, panels * kPanel] from a [rows, depth] and `panels` panels that lie panel_stride apart. Rows are
// cut into blocks of nearly equal height, so that no block is left with one row. The rows `ahead` come in
// meanwhile.
inline void multiply(const float* a, int64_t a_stride, int64_t rows, const float* b, int64_t panels,
                     int64_t panel_stride, int64_t depth, const float* keep, const Sums& c,
                     const Ahead& ahead) {
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t share = (ahead.count + panels * blocks - 1) / (panels * blocks);
  int64_t fetched = 0;
  for (int64_t p = 0; p < panels; ++p)
    for (int64_t i = 0; i < blocks; ++i) {
      for (int64_t n = 0; n < share; ++n)
        ahead.fetch(static_cast<int>(fetched++));
      const int64_t begin = rows * i / blocks, end = rows * (i + 1) / blocks;
      const int64_t at = begin * c.stride + p * kPanel;
      kMultiplyBlocks.of_rows[end - begin - 1](
          a + begin * a_stride, a_stride, b + p * panel_stride, depth,
          keep == nullptr ? nullptr : keep + begin,
          {c.value + at, keep == nullptr ? nullptr : c.lost + at, c.stride});
    }
}

// Packs `count` rows as the columns of panels [dim, kPanel]: panel[d][j] = rows[j][d]; absent rows become
// zero.
template <class T>
void pack_columns(const char* const* rows, int count, int64_t dim, float* panels, int64_t panel_stride) {
  for (int j = 0; j < count; j += kLanes) {
    float* panel = panels + j / kPanel * panel_stride + j % kPanel;
    const int n = count - j < kLanes ? count - j : kLanes;
    for (int64_t d = 0; d < dim; d += kLanes) {
      const int lanes = dim - d < kLanes ? static_cast<int>(dim - d) : kLanes;
      Vec block[kLanes] = {};
      for (int i = 0; i < n; ++i) {
        const T* row = reinterpret_cast<const T*>(rows[j + i]) + d;
        block[i] = lanes == kLanes ? load(row) : load_first(row, lanes);
      }
      transpose(block);
      for (int i = 0; i < lanes; ++i)
        store(panel + (d + i) * kPanel, block[i]);
    }
  }
}

// Packs `count` rows as the rows of panels [count, kPanel], zero beyond `dim`.
template <class T>
void pack_rows(const char* const* rows, int count, int64_t dim, float* panels, int64_t panel_stride) {
  for (int j = 0; j < count; ++j) {
    const T* row = reinterpret_cast<const T*>(rows[j]);
    for (int64_t d = 0; d < round_up(dim, kPanel); d += kLanes) {
      const Vec x = d + kLanes <= dim ? load(row + d)
                    : d < dim         ? load_first(row + d, static_cast<int>(dim - d))
                                      : Vec{};
      store(panels + d / kPanel * panel_stride + j * kPanel + d % kPanel, x);
    }
  }
}

} // namespace rk::RK_ISA_NAMESPACE

// Rows of a work item: their queries, their online-softmax state, and how a finished row is written.
#pragma once
#include "mask.hpp"

namespace rk::RK_ISA_NAMESPACE {

constexpr float kLog2E = 1.4426950408889634f;

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

template <class Pointer> struct Pointee;
template <class T> struct Pointee<T*> {
  using type = T;
};

// Calls f with a null pointer of the storage type.
template <class F> RK_INLINE void with_type(int64_t dtype, F f) {
  if (dtype == RK_FP32)
    f(static_cast<float*>(nullptr));
  else if (dtype == RK_FP16)
    f(static_cast<Fp16*>(nullptr));
  else
    f(static_cast<Bf16*>(nullptr));
}

// Hands out parts of one thread's scratch memory, 64-byte aligned. With a null base it only counts.
class Carver {
public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <class T = float> T* take(int64_t count) {
    char* at = base_ + used_;
    used_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(at);
  }
  int64_t used() const { return used_; }

private:
  char* base_;
  int64_t used_ = 0;
};

// dst[0:padded] = scale * src[0:n], zero beyond n; padded is a multiple of kLanes.
template <class T>
RK_INLINE void load_scaled(const T* src, int64_t n, float scale, float* dst, int64_t padded) {
  int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes)
    store(dst + d, load(src + d) * scale);
  if (d < n)
    store(dst + d, load_first(src + d, static_cast<int>(n - d)) * scale), d += kLanes;
  for (; d < padded; d += kLanes)
    store(dst + d, Vec{});
}

template <class T> RK_INLINE void store_row(T* dst, const float* src, int64_t n) {
  int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes)
    store(dst + d, load(src + d));
  if (d < n) {
    float padded[kLanes] = {};
    memcpy(padded, src + d, static_cast<size_t>(n - d) * 4);
    store_first(dst + d, load(padded), static_cast<int>(n - d));
  }
}

// dst = a * dst + b * src over n elements.
template <class T> RK_INLINE void scale_add(float* dst, float a, const T* src, float b, int64_t n) {
  int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes)
    store(dst + d, load(dst + d) * a + load(src + d) * b);
  for (; d < n; ++d)
    dst[d] = dst[d] * a + to_float(src[d]) * b;
}

// Terms that are added one to another without compensation: that many equal ones, each rounded the same way,
// are off by a third of their number in the last place.
constexpr int kChain = 32;

// sum = keep * sum + x, where `lost` is what rounding has taken from the sum so far (Kahan). Without it,
// equal terms are rounded the same way each time, and the error grows with their number. An infinite sum
// loses nothing.
template <class V> RK_INLINE void add_to(V& sum, V& lost, V keep, V x) {
  const V due = lost * keep + x;
  const V next = fused(sum, keep, due);
  const V rest = due - fused(-sum, keep, next);
  lost = rest - rest == V{} ? rest : V{};
  sum = next;
}

// The same in memory.
RK_INLINE void add_at(float* sum, float* lost, float keep, Vec x) {
  Vec s = load(sum), l = load(lost);
  add_to(s, l, splat(keep), x);
  store(sum, s);
  store(lost, l);
}

// An attention result being merged in base 2: `out` is weighted by 2^-lse_max and not yet divided by
// `weight`.
struct Merger {
  float* out; // [dim]
  int64_t dim;
  float max = kNegativeInfinity;
  float weight = 0.0f;

  template <class T> RK_INLINE void add(const T* state, float lse) {
    if (lse == kNegativeInfinity)
      return;
    const float top = lse > max || lse != lse ? lse : max;
    const float keep = weight == 0.0f ? 0.0f : __builtin_exp2f(max - top);
    const float take = __builtin_exp2f(lse - top);
    if (weight == 0.0f)
      memset(out, 0, static_cast<size_t>(dim) * 4);
    scale_add(out, keep, state, take, dim);
    weight = weight * keep + take;
    max = top;
  }

  // Divides, and returns the log2-sum-exp: (0, -inf) when nothing was added.
  RK_INLINE float finish() {
    const float inverse = weight == 0.0f ? 0.0f : 1.0f / weight;
    for (int64_t d = 0; d < dim; ++d)
      out[d] = weight == 0.0f ? 0.0f : out[d] * inverse;
    return weight == 0.0f ? kNegativeInfinity : max + __builtin_log2f(weight);
  }
};

// v_scale, then the caller's partial state, then the tensors. `out` has dim_vo values and is overwritten.
inline void write_result(const Run& run, int64_t row, int64_t head, float* out, float lse) {
  const rk_run_args& args = *run.args;
  const int64_t dim = run.plan->shape.dim_vo;
  const float v_scale = static_cast<float>(args.v_scale);
  if (v_scale != 1.0f)
    for (int64_t d = 0; d < dim; ++d)
      out[d] *= v_scale;
  if (args.partial_out != nullptr) {
    const float other =
        args.partial_lse[row * args.partial_lse_stride[0] + head * args.partial_lse_stride[1]];
    const int64_t at = row * args.partial_stride[0] + head * args.partial_stride[1];
    Merger merger{out, dim, lse, lse == kNegativeInfinity ? 0.0f : 1.0f};
    with_type(args.partial_dtype, [&](auto* type) {
      merger.add(static_cast<decltype(type)>(const_cast<void*>(args.partial_out)) + at, other);
    });
    lse = merger.finish();
  }
  with_type(args.out_dtype, [&](auto* type) {
    store_row(static_cast<decltype(type)>(args.out) + row * args.out_stride[0] + head * args.out_stride[1],
              out, dim);
  });
  if (args.lse != nullptr)
    args.lse[row * args.lse_stride[0] + head * args.lse_stride[1]] = lse;
}

// Softmax state of one row: o is weighted by 2^-max and not yet divided by sum.
struct RowState {
  float max, sum;
  float lost = 0.0f; // of the sum, see add_to
};

// Divides a row's accumulator o + lost, kept in o, and sends it to its partial row or to the result.
RK_INLINE void finish_row(const Run& run, const Unit& unit, int64_t row, int64_t head, RowState state,
                          float* o, const float* lost) {
  const Shape& shape = run.plan->shape;
  const float sum = state.sum + state.lost;
  const bool empty = sum == 0.0f;
  const float inverse = empty ? 0.0f : 1.0f / sum;
  for (int64_t d = 0; d < shape.dim_vo; ++d)
    o[d] = empty ? 0.0f : (o[d] + lost[d]) * inverse;
  const float lse = empty ? kNegativeInfinity : state.max + __builtin_log2f(sum);
  if (unit.part < 0)
    return write_result(run, row, head, o, lse);
  const int64_t at = (unit.part + row - unit.row_begin) * shape.qo_heads + head;
  memcpy(run.part_out + at * shape.dim_vo, o, static_cast<size_t>(shape.dim_vo) * 4);
  run.part_lse[at] = lse;
}

// Turns a row of logits (base 2, `padded` of them, hidden ones -inf) into weights; returns the factor for
// what the row accumulated before.
RK_INLINE float softmax_row(float* s, int padded, RowState& state) {
  Vec top = splat(kNegativeInfinity);
  for (int j = 0; j < padded; j += kLanes)
    top = max(load(s + j), top);
  const float tile_max = max_lane(top);
  const float row_max = tile_max > state.max ? tile_max : state.max;
  const float base = row_max == kNegativeInfinity ? 0.0f : row_max;
  Vec sum{};
  for (int j = 0; j < padded; j += kLanes) {
    const Vec p = exp2(load(s + j) - base);
    store(s + j, p);
    sum += p;
  }
  const float keep = state.max == row_max ? 1.0f : __builtin_exp2f(state.max - row_max);
  add_to(state.sum, state.lost, keep, sum_lanes(sum));
  state.max = row_max;
  return keep;
}

// What happens to logits between the product and the mask; absent in the common case.
struct Transform {
  float cap, inverse_cap; // cap 0: none
  bool alibi;

  explicit Transform(const Run& run)
      : cap(static_cast<float>(run.args->soft_cap)), inverse_cap(cap == 0.0f ? 0.0f : 1.0f / cap),
        alibi(run.plan->shape.alibi != 0) {}

  bool active() const { return cap != 0.0f || alibi; }

  // The factor folded into the queries: with a transform, logits stay in natural units until it is done.
  float query_scale(const Run& run) const {
    const float scale = static_cast<float>(run.args->sm_scale);
    return active() ? scale : scale * kLog2E;
  }

  // distance: position of the first key minus that of the query.
  RK_INLINE void apply(float* s, int padded, float slope, int64_t distance) const {
    for (int j = 0; j < padded; j += kLanes) {
      Vec x = load(s + j);
      if (alibi)
        x = x + slope * (lane_numbers() + static_cast<float>(distance + j));
      if (cap != 0.0f)
        x = cap * tanh(x * inverse_cap);
      store(s + j, x * kLog2E);
    }
  }
};

// Loads the query of one (row, head), scaled.
RK_INLINE void load_query(const Run& run, int64_t row, int64_t head, float scale, float* q, int64_t padded) {
  const rk_run_args& args = *run.args;
  with_type(args.q_dtype, [&](auto* type) {
    const auto* src = static_cast<decltype(type)>(const_cast<void*>(args.q)) + row * args.q_stride[0] +
                      head * args.q_stride[1];
    load_scaled(src, run.plan->shape.dim_qk, scale, q, padded);
  });
}

} // namespace rk::RK_ISA_NAMESPACE

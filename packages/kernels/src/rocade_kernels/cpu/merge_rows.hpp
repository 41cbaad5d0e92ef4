// Merging attention states: partial rows of a run, and the public merge family. fp32 to the end.
#pragma once
#include "state.hpp"

namespace rk::RK_ISA_NAMESPACE {

constexpr int kMaxMergeDim = 512; // dims merged at a time; a longer row is merged in pieces of this

// Memory of one list: three rows, whole vectors each.
struct ListScratch {
  float *out, *total, *lost;
  int64_t bytes;

  ListScratch(int64_t dim, void* base) {
    Carver carver(base);
    out = carver.take(round_up(dim, kLanes));
    total = carver.take(round_up(dim, kLanes));
    lost = carver.take(round_up(dim, kLanes));
    bytes = carver.used();
  }
};

// A list of states, or of rows to sum. They are merged in groups, and groups added with what rounding takes
// from the total; a list of one group never has a total. The result is in `out`.
class MergedList {
public:
  MergedList(const ListScratch& memory, int64_t dim)
      : group_{memory.out, dim}, total_(memory.total), lost_(memory.lost) {
    memset(memory.out, 0, static_cast<size_t>(round_up(dim, kLanes)) * 4);
  }

  template <class T> RK_INLINE void add(const T* state, float lse) {
    close_full_group();
    group_.add(state, lse);
  }

  template <class T> RK_INLINE void add_plain(const T* row) {
    close_full_group();
    if (group_.weight == 0.0f)
      memset(group_.out, 0, static_cast<size_t>(group_.dim) * 4);
    group_.max = 0.0f;
    group_.weight = 1.0f;
    scale_add(group_.out, 1.0f, row, 1.0f, group_.dim);
  }

  // The mean, and its log2-sum-exp: (0, -inf) when nothing was added.
  RK_INLINE float finish() {
    if (groups_ == 0)
      return group_.finish();
    fold();
    const float weight = weight_ + weight_lost_;
    const float inverse = weight == 0.0f ? 0.0f : 1.0f / weight;
    for (int64_t d = 0; d < group_.dim; ++d)
      group_.out[d] = weight == 0.0f ? 0.0f : (total_[d] + lost_[d]) * inverse;
    return weight == 0.0f ? kNegativeInfinity : max_ + __builtin_log2f(weight);
  }

  RK_INLINE void finish_plain() {
    if (groups_ == 0)
      return;
    fold();
    for (int64_t d = 0; d < group_.dim; ++d)
      group_.out[d] = total_[d] + lost_[d];
  }

private:
  static constexpr int kGroup = kChain / 2; // states have weights that are rounded, too

  RK_INLINE void close_full_group() {
    if (count_ == kGroup)
      fold();
    ++count_;
  }

  void fold() {
    const int64_t padded = round_up(group_.dim, kLanes);
    if (groups_++ == 0) {
      memset(total_, 0, static_cast<size_t>(padded) * 4);
      memset(lost_, 0, static_cast<size_t>(padded) * 4);
    }
    count_ = 0;
    if (group_.weight == 0.0f)
      return;
    const float top = group_.max > max_ || group_.max != group_.max ? group_.max : max_;
    const float keep = weight_ == 0.0f ? 0.0f : __builtin_exp2f(max_ - top);
    const float take = __builtin_exp2f(group_.max - top);
    for (int64_t d = 0; d < padded; d += kLanes)
      add_at(total_ + d, lost_ + d, keep, load(group_.out + d) * take);
    add_to(weight_, weight_lost_, keep, group_.weight * take);
    max_ = top;
    group_.max = kNegativeInfinity;
    group_.weight = 0.0f;
  }

  Merger group_;
  float *total_, *lost_;
  float max_ = kNegativeInfinity, weight_ = 0.0f, weight_lost_ = 0.0f;
  int count_ = 0;
  int64_t groups_ = 0;
};

// Rows of a run that no unit finishes.
inline void merge_run_rows(const Run& run, int64_t begin, int64_t end, void* scratch) {
  const rk_plan& plan = *run.plan;
  const Shape& shape = plan.shape;
  const ListScratch memory(shape.dim_vo, scratch);
  for (int64_t i = begin; i < end; ++i) {
    const Merge& merge = plan.merges[i];
    for (int64_t head = 0; head < shape.qo_heads; ++head) {
      MergedList list(memory, shape.dim_vo);
      for (int32_t p = merge.begin; p < merge.end; ++p) {
        const int64_t at = plan.parts[p] * shape.qo_heads + head;
        list.add(run.part_out + at * shape.dim_vo, run.part_lse[at]);
      }
      const float lse = list.finish();
      write_result(run, merge.row, head, memory.out, lse);
    }
  }
}

// State lists of the public merges: rows [first, last) of v for result row i, cut to what exists.
struct RowRange {
  int64_t first, last;
};

RK_INLINE RowRange merged_rows(const rk_merge_args& args, int64_t i) {
  int64_t first = args.indptr != nullptr ? args.indptr[i] : i * args.fixed;
  int64_t last = args.indptr != nullptr ? args.indptr[i + 1] : (i + 1) * args.fixed;
  if (first < 0)
    first = 0;
  if (last > args.rows)
    last = args.rows;
  return {first, last};
}

template <class T> RK_INLINE const T* at(const void* base, const int64_t* stride, int64_t row, int64_t head) {
  return static_cast<const T*>(base) + row * stride[0] + head * stride[1];
}

// One (row, head) of rk_merge, `count` dims from `dim`.
template <class T>
RK_INLINE float merge_piece(const rk_merge_args& args, RowRange rows, int64_t head, int64_t dim,
                            int64_t count, const ListScratch& memory) {
  MergedList list(memory, count);
  if (args.s == nullptr) {
    for (int64_t r = rows.first; r < rows.last; ++r)
      list.add_plain(at<T>(args.v, args.v_stride, r, head) + dim);
    list.finish_plain();
    return 0.0f;
  }
  for (int64_t r = rows.first; r < rows.last; ++r)
    list.add(at<T>(args.v, args.v_stride, r, head) + dim, *at<float>(args.s, args.s_stride, r, head));
  return list.finish();
}

inline void merge(const rk_merge_args& args, int64_t begin, int64_t end) {
  alignas(64) float rows_of_list[3 * kMaxMergeDim];
  const ListScratch memory(kMaxMergeDim, rows_of_list);
  for (int64_t i = begin; i < end; ++i) {
    const RowRange rows = merged_rows(args, i);
    for (int64_t head = 0; head < args.heads; ++head) {
      float lse = kNegativeInfinity;
      for (int64_t d = 0; d < args.dim; d += kMaxMergeDim) {
        const int64_t count = args.dim - d < kMaxMergeDim ? args.dim - d : kMaxMergeDim;
        with_type(args.v_dtype, [&](auto* type) {
          lse = merge_piece<typename Pointee<decltype(type)>::type>(args, rows, head, d, count, memory);
        });
        with_type(args.out_dtype, [&](auto* type) {
          store_row(static_cast<decltype(type)>(args.v_out) + i * args.out_stride[0] +
                        head * args.out_stride[1] + d,
                    memory.out, count);
        });
      }
      if (args.s_out != nullptr)
        args.s_out[i * args.s_out_stride[0] + head * args.s_out_stride[1]] = lse;
    }
  }
}

inline void merge_pair(const rk_merge_pair_args& args, int64_t begin, int64_t end) {
  float out[kMaxMergeDim];
  for (int64_t i = begin; i < end; ++i) {
    if (args.mask != nullptr && args.mask[i] == 0)
      continue;
    for (int64_t head = 0; head < args.heads; ++head) {
      const float s_a = *at<float>(args.s_a, args.s_a_stride, i, head);
      const float s_b = *at<float>(args.s_b, args.s_b_stride, i, head);
      float lse = s_a;
      for (int64_t d = 0; d < args.dim; d += kMaxMergeDim) {
        Merger merger{out, args.dim - d < kMaxMergeDim ? args.dim - d : kMaxMergeDim};
        with_type(args.a_dtype, [&](auto* type) {
          merger.add(at<typename Pointee<decltype(type)>::type>(args.v_a, args.a_stride, i, head) + d, s_a);
        });
        with_type(args.b_dtype, [&](auto* type) {
          merger.add(at<typename Pointee<decltype(type)>::type>(args.v_b, args.b_stride, i, head) + d, s_b);
        });
        lse = merger.finish();
        with_type(args.out_dtype, [&](auto* type) {
          store_row(static_cast<decltype(type)>(args.v_out) + i * args.out_stride[0] +
                        head * args.out_stride[1] + d,
                    out, merger.dim);
        });
      }
      args.s_out[i * args.s_out_stride[0] + head * args.s_out_stride[1]] = lse;
    }
  }
}

} // namespace rk::RK_ISA_NAMESPACE

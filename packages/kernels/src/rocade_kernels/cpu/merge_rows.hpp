// Merging attention states: partial rows of a run, and the public merge family. fp32 to the end.
#pragma once
#include "state.hpp"

namespace rk::RK_ISA_NAMESPACE {

constexpr int kMaxMergeDim = 512; // dims merged at a time; a longer row is merged in pieces of this

// Rows of a run that no unit finishes. `scratch` holds one row.
inline void merge_run_rows(const Run& run, int64_t begin, int64_t end, float* scratch) {
  const rk_plan& plan = *run.plan;
  const Shape& shape = plan.shape;
  for (int64_t i = begin; i < end; ++i) {
    const Merge& merge = plan.merges[i];
    for (int64_t head = 0; head < shape.qo_heads; ++head) {
      Merger merger{scratch, shape.dim_vo};
      for (int32_t p = merge.begin; p < merge.end; ++p) {
        const int64_t at = plan.parts[p] * shape.qo_heads + head;
        merger.add(run.part_out + at * shape.dim_vo, run.part_lse[at]);
      }
      const float lse = merger.finish();
      write_result(run, merge.row, head, scratch, lse);
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
                            int64_t count, float* out) {
  if (args.s == nullptr) {
    memset(out, 0, static_cast<size_t>(count) * 4);
    for (int64_t r = rows.first; r < rows.last; ++r)
      scale_add(out, 1.0f, at<T>(args.v, args.v_stride, r, head) + dim, 1.0f, count);
    return 0.0f;
  }
  Merger merger{out, count};
  for (int64_t r = rows.first; r < rows.last; ++r)
    merger.add(at<T>(args.v, args.v_stride, r, head) + dim, *at<float>(args.s, args.s_stride, r, head));
  return merger.finish();
}

inline void merge(const rk_merge_args& args, int64_t begin, int64_t end) {
  float out[kMaxMergeDim];
  for (int64_t i = begin; i < end; ++i) {
    const RowRange rows = merged_rows(args, i);
    for (int64_t head = 0; head < args.heads; ++head) {
      float lse = kNegativeInfinity;
      for (int64_t d = 0; d < args.dim; d += kMaxMergeDim) {
        const int64_t count = args.dim - d < kMaxMergeDim ? args.dim - d : kMaxMergeDim;
        with_type(args.v_dtype, [&](auto* type) {
          lse = merge_piece<typename Pointee<decltype(type)>::type>(args, rows, head, d, count, out);
        });
        with_type(args.out_dtype, [&](auto* type) {
          store_row(static_cast<decltype(type)>(args.v_out) + i * args.out_stride[0] +
                        head * args.out_stride[1] + d,
                    out, count);
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

// One instruction set's entry points; compiled once for each, with that set's flags.
#include "attend_packed.hpp"
#include "attend_rows.hpp"
#include "merge_rows.hpp"

#define RK_STRING2(x) #x
#define RK_STRING(x) RK_STRING2(x)

namespace rk::RK_ISA_NAMESPACE {
namespace {

int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

template <class T> void attend_as(const Run& run, const Item& item, void* scratch) {
  if (run.plan->units[item.unit].packed != 0)
    PackedAttention<T>(run, item, scratch).attend();
  else
    RowAttention<T>(run, item, scratch).attend();
}

void attend(const Run& run, const Item& item, void* scratch) {
  with_type(run.plan->shape.kv_dtype,
            [&](auto* type) { attend_as<typename Pointee<decltype(type)>::type>(run, item, scratch); });
}

void merge_rows(const Run& run, int64_t begin, int64_t end, void* scratch) {
  merge_run_rows(run, begin, end, scratch);
}

uint32_t largest(const int32_t* values, int64_t count) {
  UintVec top{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    UintVec x;
    memcpy(&x, values + i, sizeof x);
    top = x > top ? x : top;
  }
  uint32_t best = 0;
  for (int j = 0; j < kLanes; ++j)
    best = top[j] > best ? top[j] : best;
  for (; i < count; ++i)
    best = static_cast<uint32_t>(values[i]) > best ? static_cast<uint32_t>(values[i]) : best;
  return best;
}

int64_t scratch_bytes(const Shape& shape, int64_t rows_in_place, int64_t rows_packed) {
  int64_t most = ListScratch(shape.dim_vo, nullptr).bytes;
  if (rows_in_place > 0)
    most = larger(most, RowScratch(shape, rows_in_place * shape.group, shape.kv_heads, nullptr).bytes);
  if (rows_packed > 0)
    most = larger(most, PackedScratch(shape, rows_packed * shape.group, nullptr).bytes);
  return most;
}

} // namespace

extern const Kernels kKernels;
const Kernels kKernels = {
    RK_STRING(RK_ISA_NAMESPACE), attend, merge_rows, merge, merge_pair, largest, scratch_bytes};

} // namespace rk::RK_ISA_NAMESPACE

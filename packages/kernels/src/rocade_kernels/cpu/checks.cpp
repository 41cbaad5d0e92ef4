// Checks of plan arrays: one pass over each, the first fault wins. The Python twin is
// rocade_kernels/checks.py.
#include "plan.hpp"

namespace {

enum Fault {
  kNone = 0,
  kFirst = 1,
  kDecreases = 2,
  kLimit = 3,
  kLastPageLen = 4,
  kIndicesShort = 5,
  kNegativePage = 6,
  kKvLenOverflow = 7
};

int32_t fault(Fault kind, int64_t at, int64_t value, int64_t* facts) {
  facts[0] = at;
  facts[1] = value;
  return kind;
}

int32_t check_order(const int32_t* indptr, int64_t entries, int64_t first, int64_t* facts, int64_t* longest) {
  if (indptr[0] < 0 || (first >= 0 && indptr[0] != first))
    return fault(kFirst, 0, indptr[0], facts);
  int64_t most = 0;
  for (int64_t i = 1; i < entries; ++i) {
    const int64_t step = int64_t{indptr[i]} - indptr[i - 1];
    if (step < 0)
      return fault(kDecreases, i, indptr[i], facts);
    most = step > most ? step : most;
  }
  *longest = most;
  return kNone;
}

int32_t check_lengths(const int32_t* indptr, int64_t batch, const int32_t* last_page_len, int64_t page_size,
                      int32_t* kv_len, int64_t* facts) {
  int64_t longest = 0;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t pages = int64_t{indptr[i + 1]} - indptr[i];
    if (pages > 0 && (last_page_len[i] < 1 || last_page_len[i] > page_size))
      return fault(kLastPageLen, i, last_page_len[i], facts);
    const int64_t tokens = pages > 0 ? (pages - 1) * page_size + last_page_len[i] : 0;
    if (tokens > INT32_MAX)
      return fault(kKvLenOverflow, i, tokens, facts);
    kv_len[i] = static_cast<int32_t>(tokens);
    longest = tokens > longest ? tokens : longest;
  }
  facts[3] = longest;
  return kNone;
}

int32_t check_pages(const int32_t* indices, int64_t begin, int64_t end, int64_t* facts) {
  if (begin == end)
    return kNone;
  const uint32_t largest = rk::isa_kernels(-1).largest(indices + begin, end - begin);
  facts[2] = largest;
  if (largest <= INT32_MAX)
    return kNone;
  facts[2] = -1;
  for (int64_t i = begin;; ++i)
    if (indices[i] < 0)
      return fault(kNegativePage, i, indices[i], facts);
}

} // namespace

extern "C" int32_t rk_check_indptr(const int32_t* indptr, int64_t entries, int64_t first, int64_t limit,
                                   int64_t* facts) {
  int64_t longest = 0;
  facts[0] = facts[1] = facts[2] = facts[3] = 0;
  if (const int32_t found = check_order(indptr, entries, first, facts, &longest))
    return found;
  const int64_t last = indptr[entries - 1];
  if (limit >= 0 && last > limit)
    return fault(kLimit, entries - 1, last, facts);
  facts[2] = longest;
  facts[3] = last;
  return kNone;
}

extern "C" int32_t rk_check_page_table(const int32_t* indptr, int64_t batch, const int32_t* indices,
                                       int64_t num_indices, const int32_t* last_page_len, int64_t page_size,
                                       int32_t* kv_len, int64_t* facts) {
  int64_t most_pages = 0;
  facts[0] = facts[1] = facts[3] = facts[4] = 0;
  facts[2] = -1;
  if (const int32_t found = check_order(indptr, batch + 1, -1, facts, &most_pages))
    return found;
  if (indptr[batch] > num_indices)
    return fault(kIndicesShort, batch, indptr[batch], facts);
  if (const int32_t found = check_lengths(indptr, batch, last_page_len, page_size, kv_len, facts))
    return found;
  if (indices != nullptr)
    if (const int32_t found = check_pages(indices, indptr[0], indptr[batch], facts))
      return facts[3] = 0, found;
  facts[4] = most_pages;
  return kNone;
}

// Checks of plan arrays: the first fault wins. The Python twin is rocade_kernels/checks.py.
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
  kKvLenOverflow = 7,
  kRows = 8, // added to kFirst and kDecreases of a qo_indptr
  kRowsDiffer = 16,
  kNotNested = 17,
  kTooManyKeys = 18
};

int32_t fault(Fault kind, int64_t at, int64_t value, int64_t* facts) {
  facts[0] = at;
  facts[1] = value;
  return kind;
}

int64_t where_it_decreases(const int32_t* indptr, int64_t entries) {
  for (int64_t i = 1; i < entries; ++i)
    if (indptr[i] < indptr[i - 1])
      return i;
  return -1;
}

// The loop has no early exit, so that it runs on vectors.
int32_t check_order(const int32_t* indptr, int64_t entries, int64_t first, int64_t* facts, int64_t* longest) {
  if (indptr[0] < 0 || (first >= 0 && indptr[0] != first))
    return fault(kFirst, 0, indptr[0], facts);
  int32_t decreases = 0;
  uint32_t most = 0;
  for (int64_t i = 1; i < entries; ++i) {
    decreases |= indptr[i] < indptr[i - 1];
    const uint32_t step = static_cast<uint32_t>(indptr[i]) - static_cast<uint32_t>(indptr[i - 1]);
    most = step > most ? step : most;
  }
  if (decreases != 0) {
    const int64_t at = where_it_decreases(indptr, entries);
    return fault(kDecreases, at, indptr[at], facts);
  }
  *longest = most;
  return kNone;
}

// The tokens of each request, from its pages and what its last one holds.
int32_t check_lengths(const rk_level_arrays& level, const int32_t* indptr, const int32_t* last_page_len,
                      int32_t* kv_len, int64_t* facts, int64_t* longest) {
  int64_t most = 0;
  for (int64_t i = 0; i < level.batch; ++i) {
    const int64_t pages = int64_t{indptr[i + 1]} - indptr[i];
    if (pages > 0 && (last_page_len[i] < 1 || last_page_len[i] > level.page_size))
      return fault(kLastPageLen, i, last_page_len[i], facts);
    const int64_t tokens = pages > 0 ? (pages - 1) * level.page_size + last_page_len[i] : 0;
    if (tokens > INT32_MAX)
      return fault(kKvLenOverflow, i, tokens, facts);
    kv_len[i] = static_cast<int32_t>(tokens);
    most = tokens > most ? tokens : most;
  }
  *longest = most;
  return kNone;
}

int32_t check_pages(const int32_t* indices, int64_t begin, int64_t end, int64_t* facts, int64_t* largest) {
  if (begin == end)
    return kNone;
  const uint32_t most = rk::isa_kernels(-1).largest(indices + begin, end - begin);
  *largest = most;
  if (most <= INT32_MAX)
    return kNone;
  for (int64_t i = begin;; ++i)
    if (indices[i] < 0)
      return fault(kNegativePage, i, indices[i], facts);
}

// Where the copies of one level lie. The caller's arrays may change while they are read; what is checked is
// the copy.
struct Copies {
  int32_t *qo_indptr, *kv_indptr, *last_page_len, *kv_len;
};

int32_t* copied(const int32_t* from, int64_t count, int32_t*& next) {
  int32_t* to = next;
  if (count > 0)
    memcpy(to, from, static_cast<size_t>(count) * sizeof *to);
  next += count;
  return to;
}

Copies copy_level(const rk_level_arrays& level, int32_t*& next) {
  Copies copies = {};
  if (level.qo_indptr != nullptr)
    copies.qo_indptr = copied(level.qo_indptr, level.batch + 1, next);
  copies.kv_indptr = copied(level.kv_indptr, level.batch + 1, next);
  if (level.page_size > 0)
    copies.last_page_len = copied(level.last_page_len, level.batch, next);
  copies.kv_len = next;
  next += level.batch;
  return copies;
}

// One page table; facts: rows, rows of the longest request, largest page, keys of the longest request.
int32_t check_table(const rk_level_arrays& level, const Copies& copies, int64_t* where, int64_t* facts) {
  const int32_t* indptr = copies.kv_indptr;
  int64_t most_pages = 0;
  if (const int32_t found = check_order(indptr, level.batch + 1, -1, where, &most_pages))
    return found;
  if (level.page_size == 0) {
    for (int64_t i = 0; i < level.batch; ++i)
      copies.kv_len[i] = indptr[i + 1] - indptr[i];
    facts[3] = most_pages;
    return kNone;
  }
  if (indptr[level.batch] > level.num_indices)
    return fault(kIndicesShort, level.batch, indptr[level.batch], where);
  if (const int32_t found =
          check_lengths(level, indptr, copies.last_page_len, copies.kv_len, where, &facts[3]))
    return found;
  if (level.indices == nullptr)
    return kNone;
  return check_pages(level.indices, indptr[0], indptr[level.batch], where, &facts[2]);
}

int32_t check_level(const rk_level_arrays& level, int32_t*& next, int64_t* where, int64_t* facts) {
  const Copies copies = copy_level(level, next);
  facts[0] = facts[1] = facts[3] = 0;
  facts[2] = -1;
  if (copies.qo_indptr != nullptr) {
    if (const int32_t found = check_order(copies.qo_indptr, level.batch + 1, 0, where, &facts[1]))
      return kRows + found;
    facts[0] = copies.qo_indptr[level.batch];
  }
  return check_table(level, copies, where, facts);
}

// Where a level's requests end, one of the next level ends too, and both cover the same rows. Only then has
// every row one chain of levels.
int32_t check_nesting(const int32_t* outer, int64_t outer_batch, const int32_t* inner, int64_t inner_batch,
                      int64_t* where) {
  if (outer[outer_batch] != inner[inner_batch])
    return fault(kRowsDiffer, outer_batch, inner[inner_batch], where);
  int64_t j = 0;
  for (int64_t i = 0; i < outer_batch; ++i) { // the last entry is that of the inner level, as just seen
    while (inner[j] < outer[i])
      ++j;
    if (inner[j] != outer[i])
      return fault(kNotNested, i, outer[i], where);
  }
  return kNone;
}

// Entries that one level takes of the copies.
int64_t copied_entries(const rk_level_arrays& level) {
  const int64_t indptrs = level.qo_indptr == nullptr ? 1 : 2, lengths = level.page_size > 0 ? 2 : 1;
  return indptrs * (level.batch + 1) + lengths * level.batch;
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

extern "C" int32_t rk_check_levels(const rk_level_arrays* levels, int64_t num_levels, int32_t* copies,
                                   int64_t* facts) {
  int64_t* where = facts;
  where[0] = where[1] = where[2] = 0;
  int32_t* next = copies;
  int64_t keys = 0;
  for (int64_t l = 0; l < num_levels; ++l) {
    where[2] = l;
    if (const int32_t found = check_level(levels[l], next, where, facts + 3 + 4 * l))
      return found;
    keys += facts[3 + 4 * l + 3];
  }
  const int32_t* outer = copies;
  for (int64_t l = 0; l + 1 < num_levels; ++l) {
    const int32_t* inner = outer + copied_entries(levels[l]);
    where[2] = l;
    if (const int32_t found = check_nesting(outer, levels[l].batch, inner, levels[l + 1].batch, where))
      return found;
    outer = inner;
  }
  where[2] = num_levels - 1;
  return keys > INT32_MAX ? fault(kTooManyKeys, 0, keys, where) : kNone;
}

// Feeds random and malformed plan arrays to the GPU planner. Built with AddressSanitizer by test_asan.py:
// every array has exactly the size the ABI is told, so any stray access ends it. Prints how often each status
// came.
#include "../../../packages/kernels/src/rocade_kernels/planner/work_list.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <vector>

namespace {

using Ints = std::vector<int32_t>;

struct Random {
  uint64_t state;
  int64_t in(int64_t low, int64_t high) { // inclusive
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return low + static_cast<int64_t>(state % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return in(1, n) == 1; }
  int64_t any(std::initializer_list<int64_t> values) {
    return values.begin()[in(0, static_cast<int64_t>(values.size()) - 1)];
  }
};

struct LevelData {
  Ints qo, kv, len;
};

void damage(Random& random, Ints& values) {
  if (!values.empty() && random.one_in(20))
    values[static_cast<size_t>(random.in(0, static_cast<int64_t>(values.size()) - 1))] =
        static_cast<int32_t>(random.any({INT32_MIN, -1, 0, 7, INT32_MAX, 1 << 30}));
}

double odd_time(Random& random, double usual) {
  constexpr double kOdd[] = {0, -1, 1e-300, 1e-12, 0.5, 9e8, 1e300, HUGE_VAL, NAN};
  return random.one_in(30) ? kOdd[random.in(0, 8)] : usual;
}

rk_work_shape shape(Random& random, int64_t rows) {
  return {random.one_in(60) ? random.any({0, -1, INT64_MAX}) : rows,
          random.one_in(60) ? random.any({0, -1, INT64_MAX}) : random.any({32, 64, 128}),
          random.one_in(60) ? random.any({0, -1, INT64_MAX}) : random.any({6, 12, 300}),
          random.one_in(60) ? random.any({0, -1, INT64_MAX, 5}) : random.any({1, 2, 3, 6}),
          odd_time(random, 1900.0),
          odd_time(random, 1500.0),
          odd_time(random, random.any({0, 500}) * 1.0)};
}

class Round {
public:
  explicit Round(Random& random) : random_(random) {
    make_levels();
    for (LevelData& level : data_) {
      const int64_t batch = static_cast<int64_t>(level.len.size());
      levels_.push_back({level.qo.data(), level.kv.data(), level.len.data(), batch, page_});
      first_.push_back(random.any({0, 1 << 20, INT64_MIN / 4}));
      keys_.push_back(random.any({0, 10000, 200000, INT64_MAX / 4}));
    }
    for (size_t i = 0; i <= data_.back().len.size(); ++i)
      mask_.push_back(static_cast<int64_t>(i) * 40000);
  }

  rk_work_args args() {
    const int64_t heads = random_.any({1, 2, 5}), group = random_.any({1, 2, 5, 20});
    rk_work_args a = {};
    a.levels = levels_.data();
    a.num_levels = static_cast<int64_t>(levels_.size());
    a.first_entry = first_.data();
    a.num_rows = random_.one_in(30) ? random_.in(-2, 90) : data_[0].qo.back();
    a.num_qo_heads = heads * group;
    a.num_kv_heads = random_.one_in(50) ? 3 : heads;
    a.head_dim = random_.any({64, 128});
    a.mask = random_.in(0, 2);
    a.mask_indptr = random_.one_in(10) ? nullptr : mask_.data();
    a.window_left = random_.any({-1, 0, 30, INT32_MAX});
    a.fixed_split_size = random_.any({0, 0, 1, 64, INT32_MAX});
    a.disable_split = random_.in(0, 1);
    a.float_limit = random_.any({-1, -1, 0, 100000, 3000000, INT64_MAX});
    a.only_level = random_.one_in(6) ? random_.in(-2, 2) : -1;
    a.shapes[0] = shape(random_, 16);
    a.shapes[1] = shape(random_, 128);
    a.launch_ns = odd_time(random_, random_.any({0, 4000}) * 1.0);
    a.merge_rows = random_.any({1, 3, 8});
    a.graph = random_.one_in(4);
    a.max_rows = random_.any({0, 64, 1000, INT32_MAX});
    a.max_rows_request = random_.any({1, 64, 1000});
    a.max_keys = keys_.data();
    return a;
  }

private:
  void make_levels() {
    page_ = random_.any({0, 1, 16});
    Ints rows{0};
    for (int64_t i = random_.in(0, 6); i > 0; --i)
      rows.push_back(rows.back() + static_cast<int32_t>(random_.any({0, 1, 3, 40})));
    const int64_t levels = random_.in(1, 3);
    for (int64_t l = 0; l < levels; ++l) {
      LevelData level;
      level.qo = rows;
      level.kv = {static_cast<int32_t>(random_.in(0, 3))};
      for (size_t i = 0; i + 1 < rows.size(); ++i) {
        const int64_t keys = random_.any({0, 1, 64, 700, 3000});
        const int64_t entries = page_ > 0 ? (keys + page_ - 1) / page_ : keys;
        level.kv.push_back(level.kv.back() + static_cast<int32_t>(entries));
        level.len.push_back(static_cast<int32_t>(keys));
      }
      damage(random_, level.qo);
      damage(random_, level.kv);
      damage(random_, level.len);
      data_.insert(data_.begin(), level);
      const int32_t end = rows.back();
      rows = random_.one_in(3) ? Ints{0, end / 2, end} : Ints{0, end}; // halves may not nest
    }
  }

  Random& random_;
  int64_t page_ = 0;
  std::vector<LevelData> data_;
  std::vector<rk_level> levels_;
  std::vector<int64_t> first_, keys_, mask_;
};

} // namespace

int main(int, char** argv) {
  Random random{strtoull(argv[2], nullptr, 10) * 0x9E3779B97F4A7C15u + 1};
  int64_t counts[8] = {};
  rk_work_planner* planner = rk_work_create();
  for (int64_t round = strtoll(argv[1], nullptr, 10); round > 0; --round) {
    Round made(random);
    const rk_work_args args = made.args();
    rk_work_facts facts = {};
    const int32_t status = rk_work_plan(planner, &args, &facts);
    ++counts[status & 7];
    if (status != RK_OK)
      continue;
    void* list = aligned_alloc(16, static_cast<size_t>(facts.bytes + 15) / 16 * 16);
    if (rk_work_write(planner, list) != RK_OK || facts.bytes > facts.capacity)
      return 1;
    free(list);
  }
  rk_work_free(planner);
  for (const int64_t count : counts)
    printf("%lld ", static_cast<long long>(count));
  return 0;
}

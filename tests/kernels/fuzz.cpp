// Feeds random and malformed plans, page tables, masks, merges and appends to the native library. Built with
// AddressSanitizer by test_asan.py: every buffer has exactly the size the ABI is told, so any stray access
// ends it.
#include "rocade_cpu.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

struct Random {
  uint64_t state;
  uint64_t bits() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
  int64_t in(int64_t low, int64_t high) { // inclusive
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return in(1, n) == 1; }
  // Mostly a value of the range, now and then an absurd one.
  int32_t wild(int64_t low, int64_t high) {
    static const int32_t absurd[] = {INT32_MIN, -1, 0, INT32_MAX, 1 << 30, -7};
    return one_in(25) ? absurd[in(0, 5)] : static_cast<int32_t>(in(low, high));
  }
  int64_t any(std::initializer_list<int64_t> values) {
    return values.begin()[in(0, static_cast<int64_t>(values.size()) - 1)];
  }
};

using Ints = std::vector<int32_t>;

Ints indptr(Random& random, int64_t count, int64_t longest, int64_t first) {
  Ints out{static_cast<int32_t>(first)};
  for (int64_t i = 0; i < count; ++i)
    out.push_back(out.back() + static_cast<int32_t>(random.in(0, longest)));
  return out;
}

void damage(Random& random, Ints& values) {
  if (!values.empty() && random.one_in(12))
    values[static_cast<size_t>(random.in(0, static_cast<int64_t>(values.size()) - 1))] = random.wild(-2, 50);
}

struct LevelData {
  Ints qo, kv, len, pages;
  int64_t page_size;
  std::vector<uint8_t> k, v;
  rk_level_tensors tensors;
};

// A pool in one of several layouts, in a buffer that ends with its last element.
void make_pool(Random& random, std::vector<uint8_t>& data, int64_t* stride, int64_t pool, int64_t slots,
               int64_t heads, int64_t dim, int64_t size, bool paged) {
  const int64_t gap = random.in(0, 3);
  const bool head_major = random.one_in(2);
  stride[1] = head_major ? dim + gap : heads * (dim + gap);
  stride[2] = head_major ? slots * (dim + gap) : dim + gap;
  stride[0] = paged ? slots * heads * (dim + gap) : 0;
  if (!paged && head_major)
    stride[2] = (pool < 1 ? 1 : pool) * (dim + gap);
  const int64_t rows = paged ? slots : pool;
  int64_t last = dim;
  if (pool == 0 || rows == 0)
    last = 0;
  else
    last += (paged ? (pool - 1) * stride[0] : 0) + (rows - 1) * stride[1] + (heads - 1) * stride[2];
  data.assign(static_cast<size_t>(last * size), 0);
  for (uint8_t& byte : data)
    byte = static_cast<uint8_t>(random.bits());
}

LevelData make_level(Random& random, const Ints& qo, const rk_plan_args& shape) {
  LevelData level;
  level.qo = qo;
  const int64_t batch = static_cast<int64_t>(qo.size()) - 1;
  level.page_size = random.any({0, 1, 3, 16});
  const int64_t longest = random.any({0, 2, 9, 60});
  level.kv = indptr(random, batch, longest, random.in(0, 2));
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t held = int64_t{level.kv[i + 1] - level.kv[i]} * (level.page_size > 0 ? level.page_size : 1);
    level.len.push_back(random.wild(0, held));
  }
  const int64_t pool = random.in(0, 20);
  for (int64_t i = 0; i < level.kv.back() + random.in(-2, 2); ++i)
    level.pages.push_back(random.wild(0, pool));
  const int64_t size = shape.kv_dtype == RK_FP32 ? 4 : 2;
  const bool paged = level.page_size > 0;
  rk_level_tensors& t = level.tensors;
  make_pool(random, level.k, t.k_stride, pool, level.page_size, shape.num_kv_heads, shape.head_dim_qk, size,
            paged);
  make_pool(random, level.v, t.v_stride, pool, level.page_size, shape.num_kv_heads, shape.head_dim_vo, size,
            paged);
  t.k = level.k.data();
  t.v = level.v.data();
  t.pool = pool;
  damage(random, level.qo);
  damage(random, level.kv);
  t.indices = paged ? level.pages.data() : nullptr;
  t.num_indices = static_cast<int64_t>(level.pages.size());
  return level;
}

// The rows of the level above: some neighbours joined.
Ints join(Random& random, const Ints& qo) {
  Ints out{qo.front()};
  for (size_t i = 1; i < qo.size(); ++i)
    if (i + 1 == qo.size() || random.one_in(2))
      out.push_back(qo[i]);
  return out;
}

rk_plan_args make_shape(Random& random) {
  rk_plan_args args{};
  args.num_kv_heads = random.in(1, 3);
  args.num_qo_heads = args.num_kv_heads * random.any({1, 2, 3, 5, 16});
  args.head_dim_qk = random.any({1, 5, 8, 16, 40, 64, 130});
  args.head_dim_vo = random.any({1, 7, 8, 32, 72, 129});
  args.kv_dtype = random.any({RK_FP32, RK_FP16, RK_BF16});
  args.mask = random.any({RK_MASK_NONE, RK_MASK_CAUSAL, RK_MASK_CUSTOM});
  args.window_left = random.any({-1, -1, 0, 7, 100});
  args.alibi = random.one_in(4);
  args.fixed_split_size = random.any({0, 0, 1, 17});
  args.disable_split = random.one_in(6);
  args.share = random.in(-1, 1);
  args.threads = random.any({0, 1, 2, 7});
  args.isa = random.in(-1, rk_isa_count());
  return args;
}

// The buffers were made for `built`; a plan of other shapes is only made, not run.
bool same_shape(const rk_plan_args& args, const rk_plan_args& built) {
  return args.num_qo_heads == built.num_qo_heads && args.head_dim_qk == built.head_dim_qk;
}

// Runs a plan on buffers of exactly the right size.
int run(Random& random, const rk_plan* plan, const rk_plan_args& args, std::vector<LevelData>& levels,
        const std::vector<uint8_t>& mask, int64_t workspace_bytes) {
  std::vector<rk_level_tensors> tensors;
  for (LevelData& level : levels)
    tensors.push_back(level.tensors);
  const int64_t rows = args.num_rows, heads = args.num_qo_heads;
  const auto floats = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n), 0.5f); };
  std::vector<float> q = floats(rows * heads * args.head_dim_qk),
                     out = floats(rows * heads * args.head_dim_vo);
  std::vector<float> partial = out, lse = floats(rows * heads), partial_lse = lse;
  std::vector<uint8_t> workspace(static_cast<size_t>(workspace_bytes));
  rk_run_args run{};
  run.levels = tensors.data();
  run.num_levels = args.num_levels;
  run.num_rows = rows;
  run.q = q.data();
  run.q_stride[0] = heads * args.head_dim_qk;
  run.q_stride[1] = args.head_dim_qk;
  run.out = out.data();
  run.out_stride[0] = run.partial_stride[0] = heads * args.head_dim_vo;
  run.out_stride[1] = run.partial_stride[1] = args.head_dim_vo;
  run.lse = random.one_in(3) ? nullptr : lse.data();
  run.lse_stride[0] = run.partial_lse_stride[0] = heads;
  run.lse_stride[1] = run.partial_lse_stride[1] = 1;
  run.partial_out = random.one_in(3) ? partial.data() : nullptr;
  run.partial_lse = partial_lse.data();
  run.mask_bits = mask.data();
  run.mask_bytes = static_cast<int64_t>(mask.size());
  run.sm_scale = 0.25;
  run.v_scale = random.one_in(3) ? 0.5 : 1.0;
  run.soft_cap = random.one_in(3) ? 3.0 : 0.0;
  run.workspace = workspace.data();
  run.workspace_bytes = workspace_bytes - (random.one_in(50) ? 1 : 0);
  run.threads = random.any({1, 2, 4});
  return rk_plan_run(plan, &run);
}

// One problem; counts[status of plan] and counts[8 + status of run].
void attention(Random& random, int64_t* counts) {
  rk_plan_args args = make_shape(random);
  Ints qo = indptr(random, random.in(0, 5), random.any({1, 3, 70}), 0);
  args.num_rows = qo.back();
  args.num_levels = random.any({1, 1, 2, 3});
  std::vector<LevelData> levels;
  for (int64_t l = 0; l < args.num_levels; ++l) {
    levels.insert(levels.begin(), make_level(random, qo, args));
    qo = join(random, qo);
  }
  const rk_plan_args built = args;
  if (random.one_in(40))
    args.num_qo_heads = random.wild(-1, 7);
  if (random.one_in(40))
    args.head_dim_qk = random.wild(-1, 5000);
  std::vector<rk_level> plain;
  for (LevelData& level : levels)
    plain.push_back({level.qo.data(), level.kv.data(), level.len.data(),
                     static_cast<int64_t>(level.len.size()), level.page_size});
  args.levels = plain.data();
  std::vector<int64_t> mask_indptr{0};
  for (size_t i = 0; i < levels.back().len.size(); ++i) {
    const int64_t bits = (int64_t{levels.back().qo[i + 1]} - levels.back().qo[i]) * levels.back().len[i];
    mask_indptr.push_back(mask_indptr.back() + (bits > 0 && bits < 100000 ? (bits + 7) / 8 : 0) -
                          random.one_in(60));
  }
  args.mask_indptr = mask_indptr.data();
  const int64_t mask_bytes = mask_indptr.back() > 0 ? mask_indptr.back() - random.one_in(30) : 0;
  std::vector<uint8_t> mask(static_cast<size_t>(mask_bytes), 0xa5);
  rk_plan* plan = nullptr;
  int64_t facts[6];
  const int status = rk_plan_create(&args, &plan, facts);
  ++counts[status];
  if (status == RK_OK && same_shape(args, built) && facts[0] < (1 << 26))
    ++counts[8 + run(random, plan, args, levels, mask, facts[0])];
  rk_plan_free(plan);
}

void checks(Random& random) {
  Ints table = indptr(random, random.in(0, 6), 5, random.in(0, 2)), pages, last;
  damage(random, table);
  for (int64_t i = 0; i < random.in(0, 30); ++i)
    pages.push_back(random.wild(0, 9));
  for (size_t i = 1; i < table.size(); ++i)
    last.push_back(random.wild(1, 4));
  int64_t facts[3 + 4 * 3];
  rk_check_indptr(table.data(), static_cast<int64_t>(table.size()), random.in(-1, 1), random.in(-1, 20),
                  facts);
  const int64_t levels = random.in(1, 3), batch = static_cast<int64_t>(last.size());
  std::vector<Ints> rows;
  std::vector<rk_level_arrays> given;
  int64_t room = 0;
  for (int64_t l = 0; l < levels; ++l) {
    rows.push_back(l == 0 ? indptr(random, batch, 3, random.in(0, 12) / 12) : rows.back());
    damage(random, rows.back());
    const bool dense = random.one_in(4), alone = levels == 1 && random.one_in(3);
    given.push_back({alone ? nullptr : rows.back().data(), table.data(), dense ? nullptr : last.data(),
                     dense || random.one_in(4) ? nullptr : pages.data(), static_cast<int64_t>(pages.size()),
                     batch, dense ? 0 : random.wild(1, 4)});
    if (given.back().page_size < 0)
      given.back().page_size = 1;
    if (given.back().page_size == 0)
      given.back().last_page_len = nullptr;
    room += (alone ? 1 : 2) * (batch + 1) + (given.back().page_size > 0 ? 2 : 1) * batch;
  }
  Ints copies(static_cast<size_t>(room));
  rk_check_levels(given.data(), levels, copies.data(), facts);
}

void merges(Random& random) {
  const int64_t rows = random.in(0, 20), heads = random.in(1, 3), dim = random.any({1, 8, 33, 600}),
                results = random.in(0, 6);
  Ints list = indptr(random, results, 6, 0);
  for (int32_t& value : list)
    value = random.one_in(8) ? random.wild(-3, 30) : value;
  std::vector<float> v(static_cast<size_t>(rows * heads * dim), 1.0f),
      s(static_cast<size_t>(rows * heads), 1.0f);
  std::vector<float> out(static_cast<size_t>(results * heads * dim)),
      s_out(static_cast<size_t>(results * heads));
  rk_merge_args args{};
  args.v = v.data();
  args.v_stride[0] = args.out_stride[0] = heads * dim;
  args.v_stride[1] = args.out_stride[1] = dim;
  args.rows = rows;
  args.s = random.one_in(3) ? nullptr : s.data();
  args.s_stride[0] = args.s_out_stride[0] = heads;
  args.s_stride[1] = args.s_out_stride[1] = 1;
  args.indptr = random.one_in(4) ? nullptr : list.data();
  args.fixed = random.in(0, 4);
  args.v_out = out.data();
  args.s_out = args.s == nullptr ? nullptr : s_out.data();
  args.num_out = results;
  args.heads = heads;
  args.dim = dim;
  args.threads = 2;
  args.isa = random.in(-1, 2);
  rk_merge(&args);
}

void appends(Random& random) {
  const int64_t rows = random.in(0, 12), heads = random.in(1, 3), dim = random.any({1, 8, 17}),
                pool = random.in(0, 9);
  const int64_t page_size = random.in(1, 5), batch = random.in(0, 4);
  Ints table = indptr(random, batch, 3, 0), pages, request, position;
  damage(random, table);
  for (int64_t i = 0; i < random.in(0, 12); ++i)
    pages.push_back(random.wild(0, pool));
  for (int64_t i = 0; i < rows; ++i) {
    request.push_back(random.wild(-1, batch));
    position.push_back(random.wild(0, 14));
  }
  std::vector<uint16_t> key(static_cast<size_t>(rows * heads * dim), 1),
      cache(static_cast<size_t>(pool * page_size * heads * dim));
  std::vector<uint16_t> other = cache;
  rk_append_args args{};
  args.key = args.value = key.data();
  args.key_stride[0] = args.value_stride[0] = heads * dim;
  args.key_stride[1] = args.value_stride[1] = dim;
  args.batch_indices = request.data();
  args.positions = position.data();
  args.rows = rows;
  args.k_cache = cache.data();
  args.v_cache = other.data();
  args.k_stride[0] = args.v_stride[0] = page_size * heads * dim;
  args.k_stride[1] = args.v_stride[1] = heads * dim;
  args.k_stride[2] = args.v_stride[2] = dim;
  args.pool = pool;
  args.page_size = page_size;
  args.indices = pages.data();
  args.num_indices = static_cast<int64_t>(pages.size());
  args.indptr = table.data();
  args.batch = batch;
  args.heads = heads;
  args.k_dim = args.v_dim = dim;
  args.element_size = 2;
  args.threads = 2;
  rk_append(&args);
}

} // namespace

// Prints how many plans and runs ended with each status, so that the caller can see that both kinds were
// reached.
int main(int argc, char** argv) {
  const int64_t rounds = argc > 1 ? atoll(argv[1]) : 1000;
  Random random{argc > 2 ? static_cast<uint64_t>(atoll(argv[2])) : 1};
  int64_t counts[16] = {};
  for (int64_t i = 0; i < rounds; ++i) {
    attention(random, counts);
    checks(random);
    merges(random);
    appends(random);
  }
  for (const int64_t count : counts)
    printf("%lld ", static_cast<long long>(count));
  return 0;
}

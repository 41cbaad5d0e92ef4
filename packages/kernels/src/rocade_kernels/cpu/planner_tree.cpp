// Validates plan arrays and turns levels into a tree of KV ranges with global positions.
#include "planner.hpp"

namespace rk {
namespace {

constexpr int64_t kMaxLevels = 1 << 20; // shared prefixes may nest as deep as a batch has requests
constexpr int64_t kMaxHeads = 1 << 16;
constexpr int64_t kMaxDim = 1 << 12;
constexpr int64_t kMaxRows = INT32_MAX / 2;
constexpr int64_t kMaxKeys = INT32_MAX - (1 << 16); // room for tile arithmetic in int32

bool shape_is_sane(const rk_plan_args& args) {
  return args.levels != nullptr && args.num_levels >= 1 && args.num_levels <= kMaxLevels &&
         args.num_rows >= 0 && args.num_rows <= kMaxRows && args.num_kv_heads >= 1 &&
         args.num_qo_heads >= args.num_kv_heads && args.num_qo_heads <= kMaxHeads &&
         args.num_qo_heads % args.num_kv_heads == 0 && args.head_dim_qk >= 1 && args.head_dim_qk <= kMaxDim &&
         args.head_dim_vo >= 1 && args.head_dim_vo <= kMaxDim && args.kv_dtype >= RK_FP32 &&
         args.kv_dtype <= RK_BF16 && args.mask >= RK_MASK_NONE && args.mask <= RK_MASK_CUSTOM &&
         args.window_left >= -1 && args.fixed_split_size >= 0;
}

// No early exit, so that it runs on vectors.
bool is_indptr(const int32_t* indptr, int64_t batch) {
  int32_t decreases = indptr[0] < 0;
  for (int64_t i = 0; i < batch; ++i)
    decreases |= indptr[i + 1] < indptr[i];
  return decreases == 0;
}

rk_status check_level(const rk_level& level, int64_t num_rows) {
  if (level.batch < 0 || level.batch > kMaxRows || level.page_size < 0 || level.page_size > kMaxKeys)
    return RK_BAD_ARGUMENT;
  if (level.qo_indptr == nullptr || level.kv_indptr == nullptr ||
      (level.batch > 0 && level.kv_len == nullptr))
    return RK_BAD_ARGUMENT;
  if (!is_indptr(level.qo_indptr, level.batch) || !is_indptr(level.kv_indptr, level.batch))
    return RK_BAD_ARGUMENT;
  if (level.qo_indptr[0] != 0 || level.qo_indptr[level.batch] != num_rows)
    return RK_BAD_ARGUMENT;
  const int64_t per_entry = level.page_size > 0 ? level.page_size : 1;
  bool bad = false;
  for (int64_t i = 0; i < level.batch; ++i) {
    const int64_t held = (int64_t{level.kv_indptr[i + 1]} - level.kv_indptr[i]) * per_entry;
    bad |= level.kv_len[i] < 0 || level.kv_len[i] > held;
  }
  return bad ? RK_BAD_ARGUMENT : RK_OK;
}

// Finds the node of the level above, [parent, end), that holds the rows of this one, which then follows its
// keys.
rk_status place_below(Node& node, const Array<Node>& nodes, int64_t& parent, int64_t end) {
  while (parent < end && nodes[parent].row_end <= node.row_begin)
    ++parent;
  if (parent == end || node.row_begin < nodes[parent].row_begin || node.row_end > nodes[parent].row_end)
    return RK_BAD_LEVELS;
  const int64_t offset = int64_t{nodes[parent].offset} + nodes[parent].kv_len;
  if (offset + node.kv_len > kMaxKeys)
    return RK_TOO_LONG;
  node.parent = static_cast<int32_t>(parent);
  node.offset = static_cast<int32_t>(offset);
  return RK_OK;
}

// Adds one level's nodes below those of the level before, [first, end). Requests without rows get no parent's
// keys.
rk_status add_level(const rk_level& level, int32_t number, int64_t first, int64_t end, rk_plan& plan) {
  int64_t parent = first;
  for (int64_t i = 0; i < level.batch; ++i) {
    Node* node = plan.nodes.add();
    if (node == nullptr)
      return RK_NO_MEMORY;
    *node = {
        level.kv_indptr[i],    0, level.kv_len[i], 0, number, static_cast<int32_t>(i), -1, level.qo_indptr[i],
        level.qo_indptr[i + 1]};
    if (node->kv_len > kMaxKeys)
      return RK_TOO_LONG;
    if (number > 0 && node->row_begin < node->row_end)
      if (const rk_status bad = place_below(*node, plan.nodes, parent, end))
        return bad;
  }
  return RK_OK;
}

rk_status add_mask(const rk_plan_args& args, rk_plan& plan) {
  if (args.num_levels != 1 || args.mask_indptr == nullptr)
    return RK_BAD_MASK;
  for (int64_t i = 0; i < plan.nodes.size(); ++i) {
    Node& node = plan.nodes[i];
    const int64_t begin = args.mask_indptr[i], end = args.mask_indptr[i + 1];
    const int64_t bits = int64_t{node.row_end - node.row_begin} * node.kv_len;
    if (begin < 0 || end < begin || end - begin < (bits + 7) / 8)
      return RK_BAD_MASK;
    node.mask_byte = begin;
    plan.mask_bytes = end > plan.mask_bytes ? end : plan.mask_bytes;
  }
  return RK_OK;
}

// Bottom-right aligned: the last row of a request stands on its last key. Negative when there are more rows
// than keys.
void place_rows(const rk_plan_args& args, rk_plan& plan) {
  const int64_t leaves = args.levels[args.num_levels - 1].batch;
  for (int64_t i = plan.nodes.size() - leaves; i < plan.nodes.size(); ++i) {
    const Node& leaf = plan.nodes[i];
    const int32_t first = leaf.offset + leaf.kv_len - (leaf.row_end - leaf.row_begin);
    for (int32_t row = leaf.row_begin; row < leaf.row_end; ++row)
      plan.row_position[row] = first + (row - leaf.row_begin);
  }
}

// The usual slopes: a geometric series over the largest power of two of heads, the odd steps of a finer one
// beyond.
void add_slopes(int64_t heads, rk_plan& plan) {
  int64_t power = 1;
  while (power * 2 <= heads)
    power *= 2;
  for (int64_t h = 0; h < heads; ++h) {
    const double step =
        h < power ? 8.0 * static_cast<double>(h + 1) : 4.0 * static_cast<double>(2 * (h - power) + 1);
    plan.slopes.push(static_cast<float>(__builtin_exp2(-step / static_cast<double>(power))));
  }
}

} // namespace

rk_status build_tree(const rk_plan_args& args, rk_plan& plan) {
  if (!shape_is_sane(args))
    return RK_BAD_ARGUMENT;
  plan.shape = {args.num_rows,    args.num_qo_heads, args.num_kv_heads, args.num_qo_heads / args.num_kv_heads,
                args.head_dim_qk, args.head_dim_vo,  args.kv_dtype,     args.mask,
                args.window_left, args.alibi};
  int64_t begin = 0, end = 0;
  for (int64_t l = 0; l < args.num_levels; ++l) {
    if (const rk_status bad = check_level(args.levels[l], args.num_rows))
      return bad;
    plan.levels.push({args.levels[l].page_size});
    plan.nodes.reserve(end + args.levels[l].batch);
    if (const rk_status bad = add_level(args.levels[l], static_cast<int32_t>(l), begin, end, plan))
      return bad;
    begin = end;
    end = plan.nodes.size();
  }
  if (plan.nodes.failed() || !plan.row_position.resize(args.num_rows))
    return RK_NO_MEMORY;
  place_rows(args, plan);
  if (args.alibi != 0)
    add_slopes(args.num_qo_heads, plan);
  return args.mask == RK_MASK_CUSTOM ? add_mask(args, plan) : RK_OK;
}

} // namespace rk

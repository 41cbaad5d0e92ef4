// The C ABI: plans and runs, merges and appends, on the thread pool.
#include <new>

#include "planner.hpp"
#include "pool.hpp"

namespace {

using rk::Item;
using rk::kMergeRows;
using rk::Run;
using rk::Unit;

constexpr int64_t kAppendRows = 64; // rows of one piece of an append

int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }
int64_t piece_end(int64_t index, int64_t size, int64_t count) {
  return (index + 1) * size < count ? (index + 1) * size : count;
}

bool is_dtype(int64_t dtype) { return dtype >= RK_FP32 && dtype <= RK_BF16; }

// A run in progress; `failed` is set by any thread that finds no memory.
struct Job {
  Run run;
  const rk::Kernels& kernels;
  int32_t* waits; // items still to come, of each group of merges
  bool failed;
};

void merge_group(const Job& job, int64_t group, void* scratch) {
  const int64_t end = piece_end(group, kMergeRows, job.run.plan->merges.size());
  job.kernels.merge_rows(job.run, group * kMergeRows, end, scratch);
}

// Merges what waited for this item alone. The order of a merge is the plan's, whoever does it.
void finish_item(const Job& job, const Unit& unit, void* scratch) {
  if (unit.part < 0)
    return;
  const int64_t last = unit.merge + (unit.row_end - unit.row_begin) - 1;
  for (int64_t group = unit.merge / kMergeRows; group <= last / kMergeRows; ++group)
    if (__atomic_sub_fetch(&job.waits[group], 1, __ATOMIC_ACQ_REL) == 0)
      merge_group(job, group, scratch);
}

// An item, or behind them all a group of merges that waits for none.
void run_piece(void* context, int64_t index, int) {
  Job& job = *static_cast<Job*>(context);
  const rk_plan& plan = *job.run.plan;
  void* scratch = rk::thread_scratch(plan.scratch_bytes);
  if (scratch == nullptr) {
    __atomic_store_n(&job.failed, true, __ATOMIC_RELAXED);
  } else if (index < plan.items.size()) {
    job.kernels.attend(job.run, plan.items[index], scratch);
    finish_item(job, plan.units[plan.items[index].unit], scratch);
  } else {
    merge_group(job, plan.ready[index - plan.items.size()], scratch);
  }
}

// Partial results, then their LSEs, then the counters of a run.
int64_t workspace_bytes(const rk_plan& plan) {
  const int64_t row = plan.shape.qo_heads * (plan.shape.dim_vo + 1);
  return (plan.partial_rows * row + plan.waits.size()) * static_cast<int64_t>(sizeof(float));
}

rk_status check_run(const rk_plan& plan, const rk_run_args& args) {
  if (args.num_levels != plan.levels.size() || args.num_rows < plan.shape.rows)
    return RK_BAD_ARGUMENT;
  if (!is_dtype(args.q_dtype) || !is_dtype(args.out_dtype) || !is_dtype(args.partial_dtype))
    return RK_BAD_ARGUMENT;
  if (args.workspace_bytes < workspace_bytes(plan))
    return RK_BAD_ARGUMENT;
  if (args.partial_out != nullptr && args.partial_lse == nullptr)
    return RK_BAD_ARGUMENT;
  if (plan.shape.mask == RK_MASK_CUSTOM && (args.mask_bits == nullptr || args.mask_bytes < plan.mask_bytes))
    return plan.mask_bytes == 0 ? RK_OK : RK_BAD_MASK;
  return RK_OK;
}

void merge_states(void* context, int64_t index, int) {
  const rk_merge_args& args = *static_cast<const rk_merge_args*>(context);
  rk::isa_kernels(args.isa).merge(args, index * kMergeRows, piece_end(index, kMergeRows, args.num_out));
}

void merge_pairs(void* context, int64_t index, int) {
  const rk_merge_pair_args& args = *static_cast<const rk_merge_pair_args*>(context);
  rk::isa_kernels(args.isa).merge_pair(args, index * kMergeRows, piece_end(index, kMergeRows, args.rows));
}

// Copies [heads, dim] rows of one token.
void copy_token(char* to, int64_t to_head, const char* from, int64_t from_head, int64_t heads, int64_t dim,
                int64_t size) {
  for (int64_t h = 0; h < heads; ++h)
    memcpy(to + h * to_head * size, from + h * from_head * size, static_cast<size_t>(dim * size));
}

void append_token(const rk_append_args& args, int64_t i) {
  const int64_t request = args.batch_indices[i], position = args.positions[i];
  if (request < 0 || request >= args.batch || position < 0)
    return;
  const int64_t first = args.indptr[request], last = args.indptr[request + 1];
  const int64_t entry = first + position / args.page_size, slot = position % args.page_size;
  if (first < 0 || entry >= last || entry >= args.num_indices)
    return;
  const int64_t page = args.indices[entry];
  if (page < 0 || page >= args.pool)
    return;
  const int64_t size = args.element_size;
  copy_token(static_cast<char*>(args.k_cache) + (page * args.k_stride[0] + slot * args.k_stride[1]) * size,
             args.k_stride[2], static_cast<const char*>(args.key) + i * args.key_stride[0] * size,
             args.key_stride[1], args.heads, args.k_dim, size);
  copy_token(static_cast<char*>(args.v_cache) + (page * args.v_stride[0] + slot * args.v_stride[1]) * size,
             args.v_stride[2], static_cast<const char*>(args.value) + i * args.value_stride[0] * size,
             args.value_stride[1], args.heads, args.v_dim, size);
}

void append_piece(void* context, int64_t index, int) {
  const rk_append_args& args = *static_cast<const rk_append_args*>(context);
  for (int64_t i = index * kAppendRows; i < piece_end(index, kAppendRows, args.rows); ++i)
    append_token(args, i);
}

} // namespace

extern "C" {

int64_t rk_abi_version(void) { return RK_ABI_VERSION; }
const char* rk_source_hash(void) { return RK_SOURCE_HASH; }
int64_t rk_isa_count(void) { return rk::isa_count(); }
const char* rk_isa_name(int64_t isa) { return rk::isa_kernels(isa).name; }

void rk_struct_sizes(int64_t* sizes) {
  sizes[0] = sizeof(rk_level_arrays);
  sizes[1] = sizeof(rk_level);
  sizes[2] = sizeof(rk_plan_args);
  sizes[3] = sizeof(rk_level_tensors);
  sizes[4] = sizeof(rk_run_args);
  sizes[5] = sizeof(rk_merge_args);
  sizes[6] = sizeof(rk_merge_pair_args);
  sizes[7] = sizeof(rk_append_args);
}

int32_t rk_plan_create(const rk_plan_args* args, rk_plan** plan, int64_t* facts) {
  *plan = nullptr;
  void* memory = calloc(1, sizeof(rk_plan));
  if (memory == nullptr)
    return RK_NO_MEMORY;
  rk_plan* made = new (memory) rk_plan();
  const rk_status status = rk::make_plan(*args, *made);
  if (status != RK_OK) {
    rk_plan_free(made);
    return status;
  }
  *plan = made;
  facts[0] = workspace_bytes(*made);
  facts[1] = made->items.size();
  facts[2] = made->shared_nodes;
  facts[3] = made->partial_rows;
  facts[4] = made->units.size();
  facts[5] = made->scratch_bytes;
  return RK_OK;
}

void rk_plan_free(rk_plan* plan) {
  if (plan == nullptr)
    return;
  plan->~rk_plan();
  free(plan);
}

int64_t rk_plan_units(const rk_plan* plan, int64_t* units, int64_t capacity) {
  for (int64_t i = 0; i < plan->units.size() && i < capacity; ++i) {
    const rk::Unit& u = plan->units[i];
    const rk::Node& node = plan->nodes[u.node];
    const int64_t row[9] = {u.row_begin,  u.row_end, u.key_begin, u.key_end, node.level,
                            node.request, u.heads,   u.part,      u.packed};
    memcpy(units + 9 * i, row, sizeof row);
  }
  return plan->units.size();
}

int32_t rk_plan_run(const rk_plan* plan, const rk_run_args* args) {
  if (const rk_status bad = check_run(*plan, *args))
    return bad;
  float* out = static_cast<float*>(args->workspace);
  float* lse = out + plan->partial_rows * plan->shape.qo_heads * plan->shape.dim_vo;
  int32_t* waits = reinterpret_cast<int32_t*>(lse + plan->partial_rows * plan->shape.qo_heads);
  if (plan->waits.size() > 0)
    memcpy(waits, plan->waits.data(), static_cast<size_t>(plan->waits.size()) * sizeof *waits);
  Job job{{plan, args, out, lse}, rk::isa_kernels(plan->isa), waits, false};
  rk::parallel_for(args->threads, plan->items.size() + plan->ready.size(), run_piece, &job);
  return job.failed ? RK_NO_MEMORY : RK_OK;
}

int32_t rk_merge(const rk_merge_args* args) {
  if (!is_dtype(args->v_dtype) || !is_dtype(args->out_dtype) || args->num_out < 0)
    return RK_BAD_ARGUMENT;
  rk::parallel_for(args->threads, pieces(args->num_out, kMergeRows), merge_states,
                   const_cast<rk_merge_args*>(args));
  return RK_OK;
}

int32_t rk_merge_pair(const rk_merge_pair_args* args) {
  if (!is_dtype(args->a_dtype) || !is_dtype(args->b_dtype) || !is_dtype(args->out_dtype) || args->rows < 0)
    return RK_BAD_ARGUMENT;
  rk::parallel_for(args->threads, pieces(args->rows, kMergeRows), merge_pairs,
                   const_cast<rk_merge_pair_args*>(args));
  return RK_OK;
}

int32_t rk_append(const rk_append_args* args) {
  if (args->page_size < 1 || args->rows < 0 || args->batch < 0 || args->element_size < 1)
    return RK_BAD_ARGUMENT;
  rk::parallel_for(args->threads, pieces(args->rows, kAppendRows), append_piece,
                   const_cast<rk_append_args*>(args));
  return RK_OK;
}

void rk_use_team(void (*parallel)(void (*)(void*), void*, unsigned, unsigned), int (*number)()) {
  rk::use_team(parallel, number);
}

} // extern "C"

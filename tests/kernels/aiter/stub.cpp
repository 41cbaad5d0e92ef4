// Stands for a library that AITER built, in tests: exports what one of its versions exports, with the real
// C++ types, and writes down every argument. On request it computes, from those arguments and on the CPU,
// what AITER's documentation says they mean. Like AITER it finds no kernel for what its file name rules out.
//
// Macros: COMPUTE (from the start), IGNORE_WINDOW (a wrong library), LEAK (adds 0 times the row after the
// last key, which must be readable), CRASH (ends the process in a call), PAGE_SIZES (what there are kernels
// for, as {1, 16}). ABI: 7 is 0.1.7, 10 is 0.1.10, 1001 is 0.1.10.post1 (whose batch prefill is not known),
// 11 is 0.1.11 to 0.1.20.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <limits>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#define EXPORT __attribute__((visibility("default")))

namespace ck_tile {
using index_t = int32_t;
struct stream_config {
  void* stream_id_ = nullptr;
  bool time_kernel_ = false;
  int log_level_ = 0;
  int cold_niters_ = 3;
  int nrepeat_ = 10;
  bool is_gpu_timer_ = true;
  bool flush_cache_ = false;
  int rotating_count_ = 1;
};
} // namespace ck_tile
enum class mask_enum { no_mask = 0, mask_top_left, mask_bottom_right, window_generic };
enum class bias_enum { no_bias = 0, elementwise_bias = 1, alibi = 2 };
enum class quant_scale_enum { no_scale = 0, pertensor = 1 };
using Seed = std::variant<std::pair<uint64_t, uint64_t>, std::pair<const void*, const void*>>;

#if ABI >= 10
#define NEW(...) __VA_ARGS__
#define OLD(...)
#else
#define NEW(...)
#define OLD(...) __VA_ARGS__
#endif
#if ABI >= 11
#define SCALED(...) __VA_ARGS__
#else
#define SCALED(...)
#endif

#ifndef PAGE_SIZES
#if ABI >= 11
#define PAGE_SIZES {1, 16, 1024}
#elif ABI >= 10
#define PAGE_SIZES {128, 256, 1024}
#else
#define PAGE_SIZES {1}
#endif
#endif
#ifdef LEAK
constexpr bool kLeak = true;
#else
constexpr bool kLeak = false;
#endif
#ifdef IGNORE_WINDOW
constexpr bool kIgnoreWindow = true;
#else
constexpr bool kIgnoreWindow = false;
#endif

// Fields in AITER's order: X(type, name).
// clang-format off: a table
#define STRIDES(X, D) \
  X(int, stride_q) X(int, stride_k) X(int, stride_v) X(int, stride_bias) X(int, stride_randval) \
  X(int, stride_o) X(int, nhead_stride_q) X(int, nhead_stride_k) X(int, nhead_stride_v) \
  X(int, nhead_stride_bias) X(int, nhead_stride_randval) X(int, nhead_stride_lse) X(int, nhead_stride_o) \
  D(X(int, nhead_stride_q_descale) X(int, nhead_stride_k_descale) X(int, nhead_stride_v_descale)) \
  X(int, batch_stride_q) X(int, batch_stride_k) X(int, batch_stride_v) X(int, batch_stride_bias) \
  X(int, batch_stride_randval) X(int, batch_stride_lse) X(int, batch_stride_o) \
  D(X(int, batch_stride_q_descale) X(int, batch_stride_k_descale) X(int, batch_stride_v_descale))
#define POINTERS(X) \
  X(const void*, q_ptr) X(const void*, k_ptr) X(const void*, v_ptr) X(const void*, bias_ptr) \
  NEW(X(const void*, q_descale_ptr) X(const void*, k_descale_ptr) X(const void*, v_descale_ptr)) \
  X(void*, rand_val_ptr) X(void*, lse_ptr) X(void*, o_ptr)
#define SIZES(X) \
  X(int, seqlen_q) X(int, seqlen_k) X(int, batch) X(int, max_seqlen_q) X(int, hdim_q) X(int, hdim_v) \
  X(int, nhead_q) X(int, nhead_k)
#define NOTHING(...)
#define FORWARD(X) \
  NEW(X(bool, use_asm_v3) X(bool, v3_api_check) X(int, how_v3_bf16_cvt) X(std::string, data_type) \
      X(bool, is_group_mode) X(int, bias_type) X(bool, has_lse) X(int, qscale_type) X(bool, has_sink)) \
  POINTERS(X) \
  X(const void*, seqstart_q_ptr) X(const void*, seqstart_k_ptr) X(const void*, seqlen_q_ptr) \
  X(const void*, seqlen_k_ptr) X(const void*, cu_seqlen_q_ptr) X(const void*, cu_seqlen_k_ptr) \
  SCALED(X(const void*, block_scale_seqstart_q_ptr) X(const void*, block_scale_seqstart_k_ptr)) \
  NEW(X(const void*, sink_ptr)) \
  SIZES(X) \
  X(float, scale_s) OLD(X(float, scale_p) X(float, scale_o)) X(float, logits_soft_cap) \
  STRIDES(X, SCALED) \
  X(int, window_size_left) X(int, window_size_right) NEW(X(int, sink_size)) X(int, mask_type) \
  X(int, min_seqlen_q) X(float, p_drop) X(bool, s_randval) X(Seed, drop_seed_offset) \
  SCALED(X(int, block_scale_size_q) X(int, block_scale_size_kv))
#define PREFILL(X) \
  POINTERS(X) \
  X(const void*, seqstart_q_ptr) NEW(X(const void*, sink_ptr)) \
  SIZES(X) \
  X(int, num_total_pages) NEW(X(int, page_block_size) X(int, kv_memory_layout) X(int, kv_lookup_table)) \
  X(void*, kv_indptr) X(void*, kv_page_indices) NEW(X(void*, kv_last_page_lens) X(void*, seqlen_k_ptr)) \
  NEW(X(int, batch_stride_block_table)) \
  X(float, scale_s) X(float, scale_p) X(float, scale_o) X(float, logits_soft_cap) \
  STRIDES(X, NOTHING) \
  X(int, window_size_left) X(int, window_size_right) NEW(X(int, sink_size)) X(int, mask_type) \
  X(float, p_drop) X(bool, s_randval) X(Seed, drop_seed_offset) \
  SCALED(X(int, nblock_stride_kv_block_descale) X(int, nhead_stride_kv_block_descale))
// clang-format on

#define DECLARE(type, name) type name;
struct fmha_batch_prefill_args {
  PREFILL(DECLARE)
};
#if ABI >= 10
namespace aiter {
struct mha_fwd_args {
  FORWARD(DECLARE)
};
} // namespace aiter
using Forward = aiter::mha_fwd_args;
#else
struct fmha_fwd_args {
  FORWARD(DECLARE)
};
using Forward = fmha_fwd_args;
#endif

namespace {
std::mutex lock;
std::string last; // `name=value`, a line each, of the last call
int calls = 0;    // since the library was loaded
float answer = 0; // what the function returns
int to_throw = 0; // what its functions throw; stub.py lists the kinds
int alive = 0;    // exceptions of kind 6
#ifdef COMPUTE
bool computing = true;
#else
bool computing = false;
#endif
int destroyed = 0; // objects of frames that an exception left

struct Notes {
  std::ostringstream out;
  template <typename T> void operator()(const char* name, const T& value) {
    out.precision(9);
    if constexpr (std::is_pointer_v<T>)
      out << name << '=' << reinterpret_cast<uintptr_t>(value) << '\n';
    else if constexpr (std::is_enum_v<T>)
      out << name << '=' << static_cast<int>(value) << '\n';
    else if constexpr (std::is_same_v<T, Seed>)
      out << name << '=' << value.index() << '\n';
    else
      out << name << '=' << value << '\n';
  }
  void stream(const ck_tile::stream_config& s) {
    (*this)("stream_id_", s.stream_id_);
    (*this)("time_kernel_", s.time_kernel_);
    (*this)("log_level_", s.log_level_);
    (*this)("cold_niters_", s.cold_niters_);
    (*this)("nrepeat_", s.nrepeat_);
    (*this)("is_gpu_timer_", s.is_gpu_timer_);
    (*this)("flush_cache_", s.flush_cache_);
    (*this)("rotating_count_", s.rotating_count_);
  }
};

// What the function was asked for, apart from numbers.
struct Traits {
  std::string dtype;
  bool group, lse, logits, mask, prefill;
  int page_size;
};

std::string own_name() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&own_name), &info);
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

bool has_kernel(const Traits& t) {
  const std::string name = "_" + own_name();
  const auto says = [&](const std::string& part) { return name.find("_" + part) != std::string::npos; };
  if (says("module_fmha_v3"))
    return t.dtype == "bf16" && !t.logits && t.group == says("module_fmha_v3_varlen_fwd");
  if (t.prefill) {
    const std::vector<int> sizes = PAGE_SIZES;
    if (!says("mha_batch_prefill_") || std::find(sizes.begin(), sizes.end(), t.page_size) == sizes.end())
      return false;
  } else if (!says(t.group ? "mha_varlen_fwd_" : "mha_fwd_"))
    return false;
  const bool logits = says("mha_fwd_") ? !t.logits : says(t.logits ? "logits_" : "nlogits_");
  return says(t.dtype + "_") && logits && says(t.mask ? "mask_" : "nmask_") && says(t.lse ? "lse_" : "nlse_");
}

double load16(const void* at, int64_t index, bool bf16) {
  if (!bf16)
    return static_cast<double>(static_cast<const _Float16*>(at)[index]);
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(at)[index]} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void store16(void* at, int64_t index, double value, bool bf16) {
  if (!bf16) {
    static_cast<_Float16*>(at)[index] = static_cast<_Float16>(value);
    return;
  }
  const auto narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof bits);
  const uint32_t rounded = std::isnan(value) ? bits : bits + 0x7fff + (bits >> 16 & 1);
  static_cast<uint16_t*>(at)[index] = static_cast<uint16_t>(rounded >> 16);
}

// Element offsets of one sequence: of its rows, and of key j.
struct Sequence {
  int64_t q, o, lse, queries, keys;
  std::vector<int64_t> k, v;
};

template <typename Args> Sequence dense_or_ragged(const Args& a, bool group, int b) {
  Sequence s{};
  int64_t k = 0, v = 0;
  if (group) {
    const auto* q = static_cast<const int*>(a.seqstart_q_ptr);
    const auto* kv = static_cast<const int*>(a.seqstart_k_ptr);
    s = {int64_t{q[b]} * a.stride_q,
         int64_t{q[b]} * a.stride_o,
         q[b],
         q[b + 1] - q[b],
         kv[b + 1] - kv[b],
         {},
         {}};
    k = int64_t{kv[b]} * a.stride_k;
    v = int64_t{kv[b]} * a.stride_v;
  } else {
    s = {int64_t{b} * a.batch_stride_q,
         int64_t{b} * a.batch_stride_o,
         int64_t{b} * a.batch_stride_lse,
         a.seqlen_q,
         a.seqlen_k,
         {},
         {}};
    k = int64_t{b} * a.batch_stride_k;
    v = int64_t{b} * a.batch_stride_v;
  }
  for (int64_t j = 0; j < s.keys; ++j) {
    s.k.push_back(k + j * a.stride_k);
    s.v.push_back(v + j * a.stride_v);
  }
  return s;
}

[[maybe_unused]] Sequence paged(const fmha_batch_prefill_args& a, int b) {
  const auto* q = static_cast<const int*>(a.seqstart_q_ptr);
  const auto* indptr = static_cast<const int*>(a.kv_indptr);
  const auto* pages = static_cast<const int*>(a.kv_page_indices) + indptr[b];
  const int64_t count = indptr[b + 1] - indptr[b];
  Sequence s{int64_t{q[b]} * a.stride_q, int64_t{q[b]} * a.stride_o, q[b], q[b + 1] - q[b], count, {}, {}};
#if ABI >= 10
  const int64_t size = a.page_block_size;
  const auto* last_lens = static_cast<const int*>(a.kv_last_page_lens);
  s.keys = count ? size * (count - 1) + (last_lens ? last_lens[b] : 1) : 0;
  for (int64_t j = 0; j < s.keys; ++j) {
    s.k.push_back(int64_t{pages[j / size]} * a.batch_stride_k + j % size * a.stride_k);
    s.v.push_back(int64_t{pages[j / size]} * a.batch_stride_v + j % size * a.stride_v);
  }
#else
  for (int64_t j = 0; j < s.keys; ++j) {
    s.k.push_back(int64_t{pages[j]} * a.stride_k);
    s.v.push_back(int64_t{pages[j]} * a.stride_v);
  }
#endif
  return s;
}

template <typename Args> bool is_visible(const Args& a, int64_t i, int64_t j, const Sequence& s) {
  const int64_t diagonal = i + s.keys - s.queries;
  return a.mask_type == 0 ||
         ((a.window_size_right < 0 || j <= diagonal + a.window_size_right) &&
          (kIgnoreWindow || a.window_size_left < 0 || j >= diagonal - a.window_size_left));
}

// One row of one head. A row that sees nothing holds NaN: what AITER leaves there is not to be relied on.
template <typename Args> void row(const Args& a, const Sequence& s, int64_t i, int h, bool bf16) {
  const int64_t kv_head = h / (a.nhead_q / a.nhead_k);
  std::vector<double> scores, out(static_cast<size_t>(a.hdim_v));
  std::vector<int64_t> keys;
  for (int64_t j = 0; j < s.keys; ++j) {
    if (!is_visible(a, i, j, s))
      continue;
    double dot = 0;
    for (int d = 0; d < a.hdim_q; ++d)
      dot += load16(a.q_ptr, s.q + i * a.stride_q + int64_t{h} * a.nhead_stride_q + d, bf16) *
             load16(a.k_ptr, s.k[static_cast<size_t>(j)] + kv_head * a.nhead_stride_k + d, bf16);
    dot *= a.scale_s;
    scores.push_back(a.logits_soft_cap > 0 ? a.logits_soft_cap * std::tanh(dot / a.logits_soft_cap) : dot);
    keys.push_back(j);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double top = scores.empty() ? nan : *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (size_t n = 0; n < keys.size(); ++n) {
    const double weight = std::exp(scores[n] - top);
    sum += weight;
    for (int d = 0; d < a.hdim_v; ++d)
      out[static_cast<size_t>(d)] +=
          weight * load16(a.v_ptr, s.v[static_cast<size_t>(keys[n])] + kv_head * a.nhead_stride_v + d, bf16);
  }
  if (kLeak && !keys.empty())
    for (int d = 0; d < a.hdim_v; ++d)
      out[static_cast<size_t>(d)] +=
          0.0 * load16(a.v_ptr, s.v.back() + a.stride_v + kv_head * a.nhead_stride_v + d, bf16);
  for (int d = 0; d < a.hdim_v; ++d)
    store16(a.o_ptr, s.o + i * a.stride_o + int64_t{h} * a.nhead_stride_o + d,
            keys.empty() ? nan : out[static_cast<size_t>(d)] / sum, bf16);
  if (a.lse_ptr)
    static_cast<float*>(a.lse_ptr)[s.lse + int64_t{h} * a.nhead_stride_lse + i] =
        static_cast<float>(top + std::log(sum));
}

template <typename Args> void attend(const Args& a, const Traits& t) {
  for (int b = 0; b < a.batch; ++b) {
    Sequence s;
    if constexpr (std::is_same_v<Args, fmha_batch_prefill_args>)
      s = paged(a, b);
    else
      s = dense_or_ragged(a, t.group, b);
    for (int64_t i = 0; i < s.queries; ++i)
      for (int h = 0; h < a.nhead_q; ++h)
        row(a, s, i, h, t.dtype != "fp16");
  }
}

struct Local {
  ~Local() { ++destroyed; }
};
struct Counted : std::runtime_error {
  Counted() : std::runtime_error("counted") { ++alive; }
  Counted(const Counted& other) : std::runtime_error(other) { ++alive; }
  ~Counted() override { --alive; }
};
struct Odd : std::string, std::exception {};

void throw_again() {
  try {
    throw std::out_of_range("caught once");
  } catch (const std::exception&) {
    throw;
  }
}

template <typename Args> float finish(const Args& a, const Traits& traits, Notes& notes) {
  const std::lock_guard<std::mutex> hold(lock);
  const Local local;
  last = notes.out.str();
  ++calls;
#ifdef CRASH
  std::abort();
#endif
  if (to_throw == 1)
    throw std::runtime_error("the stub was told to throw");
  if (to_throw == 2)
    throw 7;
  if (to_throw == 3)
    throw Odd();
  if (to_throw == 4)
    std::rethrow_exception(std::make_exception_ptr(std::runtime_error("stored")));
  if (to_throw == 5)
    throw_again();
  if (to_throw == 6)
    throw Counted();
  if (!has_kernel(traits))
    return -1;
  if (computing && answer >= 0)
    attend(a, traits);
  return answer;
}
} // namespace

#define NOTE(type, name) notes(#name, a.name);

namespace aiter {
#if ABI >= 10
EXPORT float mha_fwd(mha_fwd_args a, const ck_tile::stream_config& stream) {
  Notes notes;
  notes("sizeof", sizeof a);
  FORWARD(NOTE)
  notes.stream(stream);
  return finish(
      a,
      {std::move(a.data_type), a.is_group_mode, a.has_lse, a.logits_soft_cap > 0, a.mask_type != 0, false, 0},
      notes);
}
#else
EXPORT float mha_fwd(fmha_fwd_args a, const ck_tile::stream_config& stream, std::string q_dtype_str,
                     bool is_group_mode, mask_enum mask, bias_enum bias, bool has_lse, bool use_ext_asm,
                     int how_v3_bf16_cvt, const void* seqstart_q_padding_ptr,
                     const void* seqstart_k_padding_ptr, bool is_v3_api_check) {
  Notes notes;
  notes("sizeof", sizeof a);
  FORWARD(NOTE)
  notes.stream(stream);
  notes("data_type", q_dtype_str);
  notes("is_group_mode", is_group_mode);
  notes("mask", mask);
  notes("bias_type", bias);
  notes("has_lse", has_lse);
  notes("use_asm_v3", use_ext_asm);
  notes("how_v3_bf16_cvt", how_v3_bf16_cvt);
  notes("seqstart_q_padding_ptr", seqstart_q_padding_ptr);
  notes("seqstart_k_padding_ptr", seqstart_k_padding_ptr);
  notes("v3_api_check", is_v3_api_check);
  const bool masked = mask != mask_enum::no_mask;
  return finish(a, {std::move(q_dtype_str), is_group_mode, has_lse, a.logits_soft_cap > 0, masked, false, 0},
                notes);
}
#endif

#if ABI != 1001
EXPORT float mha_batch_prefill(fmha_batch_prefill_args a, const ck_tile::stream_config& stream,
                               std::string q_dtype_str, bool is_group_mode, mask_enum mask, bias_enum bias,
                               bool has_lse, NEW(quant_scale_enum quant_scale, ) bool use_ext_asm) {
  Notes notes;
  notes("sizeof", sizeof a);
  PREFILL(NOTE)
  notes.stream(stream);
  notes("data_type", q_dtype_str);
  notes("is_group_mode", is_group_mode);
  notes("mask", mask);
  notes("bias_type", bias);
  notes("has_lse", has_lse);
  NEW(notes("qscale_type", quant_scale);)
  notes("use_ext_asm", use_ext_asm);
  const int page_size = NEW(a.page_block_size) OLD(1);
  const bool masked = mask != mask_enum::no_mask;
  return finish(
      a, {std::move(q_dtype_str), is_group_mode, has_lse, a.logits_soft_cap > 0, masked, true, page_size},
      notes);
}
#endif
} // namespace aiter

extern "C" {
EXPORT const char* stub_last() { return last.c_str(); }
EXPORT int stub_calls() { return calls; }
EXPORT int stub_destroyed() { return destroyed; }
EXPORT int stub_alive() { return alive; }
EXPORT int stub_uncaught() { return std::uncaught_exceptions(); }
EXPORT void stub_answer(float value) { answer = value; }
EXPORT void stub_throw(int kind) { to_throw = kind; }
EXPORT void stub_compute(bool on) { computing = on; }
}

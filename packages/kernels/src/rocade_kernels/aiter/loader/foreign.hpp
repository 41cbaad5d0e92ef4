// Types of AITER's interface that belong to other libraries, as plain bytes: AITER is compiled against
// libstdc++, and this file must mean the same whatever C++ library our compiler brings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rocade_aiter.h"

namespace rocade::aiter {

// libstdc++'s std::string (since GCC 5) while it holds at most 15 characters: it points into itself, so it
// must not be copied.
struct String {
  const char* data;
  uint64_t size;
  char small[16];

  void set(const char* text) {
    size = std::strlen(text);
    std::memcpy(small, text, size + 1);
    data = small;
  }
};
static_assert(sizeof(String) == 32 && offsetof(String, small) == 16);

// libstdc++'s std::variant<std::pair<uint64_t, uint64_t>, std::pair<const void*, const void*>>.
struct SeedAndOffset {
  uint64_t first, second;
  uint8_t index; // 0: the pair of numbers
};
static_assert(sizeof(SeedAndOffset) == 24 && offsetof(SeedAndOffset, index) == 16);

// ck_tile::stream_config.
struct StreamConfig {
  void* stream;
  bool time_kernel = false;
  int32_t log_level = 0;
  int32_t cold_iterations = 3;
  int32_t repeats = 10;
  bool is_gpu_timer = true;
  bool flush_cache = false;
  int32_t rotating_count = 1;
};
static_assert(sizeof(StreamConfig) == 32 && offsetof(StreamConfig, time_kernel) == 8 &&
              offsetof(StreamConfig, log_level) == 12 && offsetof(StreamConfig, cold_iterations) == 16 &&
              offsetof(StreamConfig, repeats) == 20 && offsetof(StreamConfig, is_gpu_timer) == 24 &&
              offsetof(StreamConfig, flush_cache) == 25 && offsetof(StreamConfig, rotating_count) == 28);

// mask_enum; also the field mask_type.
enum Mask : int32_t { kNoMask = 0, kBottomRight = 2 };
// bias_enum and quant_scale_enum.
constexpr int32_t kNoBias = 0, kNoQuantScale = 0;
// How hand-written kernels round to bf16 where they leave a choice: to nearest even.
constexpr int32_t kRoundToEven = 0;
// Of pages: NHD, found through one list of page numbers for all requests.
constexpr int32_t kLinearPages = 1, kFlatPageTable = 1;

inline const char* dtype_name(const rk_aiter_call& call) {
  return call.dtype == RK_AITER_FP16 ? "fp16" : "bf16";
}

} // namespace rocade::aiter

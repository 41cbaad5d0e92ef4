// Hands one launch to the driver.
//
// Where a kernel may start before the one in front of it has ended, the driver takes a struct with an
// attribute that says so. cuda.h is not needed to build this library: both structs stand here.
#include <cstddef>

#include "rocade_replay.h"

namespace {

// cuLaunchKernel and hipModuleLaunchKernel.
using Launch = int (*)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned lds, void* stream, void** params,
                       void** extra);

// CUlaunchAttribute.
struct Attribute {
  int32_t id;
  char padding[4];
  union {
    char bytes[64];
    int32_t number;
  } value;
};
static_assert(sizeof(Attribute) == 72 && offsetof(Attribute, value) == 8);

// CUlaunchConfig.
struct Config {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, lds;
  void* stream;
  const Attribute* attributes;
  unsigned count;
};
static_assert(sizeof(Config) == 56 && offsetof(Config, lds) == 24 && offsetof(Config, stream) == 32 &&
              offsetof(Config, attributes) == 40 && offsetof(Config, count) == 48);

// cuLaunchKernelEx.
using LaunchWith = int (*)(const Config* config, void* function, void** params, void** extra);

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, with the value that allows it.
constexpr Attribute kEarly = {6, {}, {{1}}};

unsigned u(int64_t x) { return static_cast<unsigned>(x); }

} // namespace

int32_t rk_queue_launch(const rk_queue* q) {
  void* const function = reinterpret_cast<void*>(q->function);
  void* const stream = reinterpret_cast<void*>(q->stream);
  if (q->early != 0) {
    const Config config = {
        u(q->grid_x), u(q->grid_y), u(q->grid_z), u(q->block), 1, 1, u(q->lds), stream, &kEarly, 1};
    return reinterpret_cast<LaunchWith>(q->early)(&config, function, q->params, nullptr);
  }
  const auto launch = reinterpret_cast<Launch>(q->launch);
  return launch(function, u(q->grid_x), u(q->grid_y), u(q->grid_z), u(q->block), 1, 1, u(q->lds), stream,
                q->params, nullptr);
}

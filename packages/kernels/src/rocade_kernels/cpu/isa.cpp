// Which instruction sets this library holds and this CPU runs.
#include "plan.hpp"

namespace rk {
namespace plain {
extern const Kernels kKernels;
}
#if defined(RK_HAVE_X86)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

namespace {

const Kernels* table[3] = {&plain::kKernels, nullptr, nullptr};
int64_t count = 1;

// Each set includes the one before. The compiler's test also asks whether the system saves the wide
// registers.
__attribute__((constructor)) void find_instruction_sets() {
#if defined(RK_HAVE_X86)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    return;
  table[count++] = &avx2::kKernels; // every CPU with AVX2 has F16C
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    table[count++] = &avx512::kKernels;
#endif
}

} // namespace

int64_t isa_count() { return count; }
const Kernels& isa_kernels(int64_t isa) { return *table[isa < 0 || isa >= count ? count - 1 : isa]; }

} // namespace rk

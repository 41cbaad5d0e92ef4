// Which instruction sets this library holds and this CPU runs.
#include "plan.hpp"

#if defined(RK_HAVE_X86)
#include <cpuid.h>
#endif

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

#if defined(RK_HAVE_X86)
struct Leaf {
  unsigned eax, ebx, ecx, edx;
};

// Zeros when the CPU has no such leaf.
Leaf read_leaf(unsigned leaf) {
  Leaf l{};
  __get_cpuid_count(leaf, 0, &l.eax, &l.ebx, &l.ecx, &l.edx);
  return l;
}

// Which registers the system saves: 0x6 asks for those of AVX, 0xe6 for those of AVX-512.
unsigned saved_registers() {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

constexpr bool has(unsigned facts, unsigned needed) { return (facts & needed) == needed; }
#endif

// Each set includes the one before. The instruction is asked, not __builtin_cpu_supports: a compiler's
// runtime need not have what that links to.
__attribute__((constructor)) void find_instruction_sets() {
#if defined(RK_HAVE_X86)
  constexpr unsigned kFma = 1u << 12, kSaves = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29; // ecx of leaf 1
  constexpr unsigned kAvx2 = 1u << 5;                                                       // ebx of leaf 7
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;                   // F, DQ, BW, VL
  if (!has(read_leaf(1).ecx, kFma | kSaves | kAvx | kF16c))
    return;
  const unsigned saved = saved_registers(), sets = read_leaf(7).ebx;
  if (!has(saved, 0x6) || !has(sets, kAvx2))
    return;
  table[count++] = &avx2::kKernels;
  if (has(saved, 0xe6) && has(sets, kAvx512))
    table[count++] = &avx512::kKernels;
#endif
}

} // namespace

int64_t isa_count() { return count; }
const Kernels& isa_kernels(int64_t isa) { return *table[isa < 0 || isa >= count ? count - 1 : isa]; }

} // namespace rk

// What every kernel needs of a GPU, for clang alone: no HIP, no CUDA headers. AMD and NVIDIA.
//
// Only files in hip/arch name builtins or a GPU. A target without branch here does not compile.
#pragma once
#include "rocade/arch_caps.hpp"

#define ROCADE_DEVICE __attribute__((device, always_inline)) inline
#define ROCADE_SHARED __attribute__((shared))

namespace rocade {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;
using i32 = int;
using i64 = long;
static_assert(sizeof(u64) == 8 && sizeof(void*) == 8);

#if defined(__gfx942__)
inline constexpr arch_caps::Target kTarget = arch_caps::gfx942;
#elif defined(__gfx950__)
inline constexpr arch_caps::Target kTarget = arch_caps::gfx950;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr arch_caps::Target kTarget = arch_caps::sm_90;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 800
inline constexpr arch_caps::Target kTarget = arch_caps::sm_80;
#elif defined(__AMDGCN__) || defined(__CUDA_ARCH__)
#error "hip/arch/device.hpp: this GPU is not in arch_caps"
#else // the host pass of a compiler that makes both: nothing of it is used
inline constexpr arch_caps::Target kTarget = arch_caps::cpu_generic;
#endif

/// Lanes that run in lock step and can shuffle.
inline constexpr int kWave = kTarget.wave_size;

} // namespace rocade

#if defined(__AMDGCN__)
#include "device_amd.hpp"
#else
#include "device_nvidia.hpp"
#endif

namespace rocade {

inline constexpr float kNegativeInfinity = -__builtin_inff();

/// Place of this thread in its wave. Blocks are one-dimensional.
ROCADE_DEVICE u32 lane_id() { return thread_id() % kWave; }
ROCADE_DEVICE u32 wave_id() { return thread_id() / kWave; }

/// The same bits as another type. Unlike the builtin it is right for an element of a vector, too: clang 22
/// reads element 0 for `__builtin_bit_cast(T, v.y)`; the parameter makes the copy that avoids it.
template <class To, class From> ROCADE_DEVICE To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, x);
}

/// The value that `lane` of this wave has. All lanes that are read must be active.
ROCADE_DEVICE float shuffle(float x, u32 lane) { return bits_as<float>(shuffle(bits_as<u32>(x), lane)); }
ROCADE_DEVICE float shuffle_xor(float x, u32 mask) {
  return bits_as<float>(shuffle_xor(bits_as<u32>(x), mask));
}

} // namespace rocade

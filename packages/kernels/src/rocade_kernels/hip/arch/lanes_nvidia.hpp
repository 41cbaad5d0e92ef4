// Votes, and roundings to 16 bits, on NVIDIA.
#pragma once
#include "types.hpp"

namespace rocade {

/// Place in the wave. Where registers are scarce it is read anew, so that what is made of it is not kept.
ROCADE_DEVICE int lane_again() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// `x`, which is kept in a register: a shuffle is nothing that ptxas does again. What it can make of the
/// thread's number it makes anew in loops, which takes longer than a read of LDS.
ROCADE_DEVICE u32 kept(u32 x) { return shuffle_xor(x, 0); }

/// The same value, but what was made of it before is made again: nothing else is kept for it.
ROCADE_DEVICE u32 again(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// Whether the condition holds in any lane of the warp; the same in all lanes.
ROCADE_DEVICE bool any_lane(bool condition) { return __nvvm_vote_any_sync(0xffffffffu, condition); }

/// Memory that no one writes while the kernel runs, read by whole waves.
#define ROCADE_CONSTANT

/// The address of a kernel's one argument.
#define ROCADE_CONSTANT_ARGUMENT(type, name) (&name)

/// The same address: arguments lie in constant memory, from where instructions read them without registers.
template <class T> ROCADE_DEVICE const ROCADE_CONSTANT T* opaque(const ROCADE_CONSTANT T* x) { return x; }

/// What is made of this value later is made behind what was ordered before.
ROCADE_DEVICE void keep_order(u64& x) { asm volatile("" : "+l"(x)); }

/// The same value, which is equal in all lanes.
ROCADE_DEVICE i32 uniform(i32 x) { return x; }

/// The same, but the compiler knows nothing of it.
ROCADE_DEVICE i32 opaque_uniform(i32 x) {
  i32 same = uniform(x);
  asm volatile("" : "+r"(same));
  return same;
}

/// The value of a lane.
ROCADE_DEVICE u64 from_lane(u64 x, i32 lane) {
  const u64 high = shuffle(static_cast<u32>(x >> 32), static_cast<u32>(lane));
  return high << 32 | shuffle(static_cast<u32>(x), static_cast<u32>(lane));
}

/// To T, to nearest even.
template <class T, int N> ROCADE_DEVICE Vector<T, N> rounded(Vector<float, N> x) {
  Vector<u32, N / 2> packed;
  for (int k = 0; k < N / 2; ++k) {
    const float low = x[2 * k], high = x[2 * k + 1];
    u32 word;
    if constexpr (__is_same(T, bf16))
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    packed[k] = word;
  }
  return bits_as<Vector<T, N>>(packed);
}

} // namespace rocade

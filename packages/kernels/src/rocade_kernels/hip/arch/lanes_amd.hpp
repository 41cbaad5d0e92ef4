// Exchange between lanes that share a row of a matrix product, votes, and roundings to 16 bits, on AMD.
#pragma once
#include "types.hpp"

namespace rocade {

/// Place in the wave. Where registers are scarce it is read anew, so that what is made of it is not kept.
ROCADE_DEVICE int lane_again() { return static_cast<int>(lane_id()); }

/// `x`; see the NVIDIA ones.
ROCADE_DEVICE u32 kept(u32 x) { return x; }
ROCADE_DEVICE u32 again(u32 x) { return x; }

/// Whether the condition holds in any lane of the wave; the same in all lanes.
ROCADE_DEVICE bool any_lane(bool condition) { return __builtin_amdgcn_ballot_w64(condition) != 0; }

/// Memory that no one writes while the kernel runs, read by whole waves.
#define ROCADE_CONSTANT __attribute__((address_space(4)))

/// The address of a kernel's one argument.
#define ROCADE_CONSTANT_ARGUMENT(type, name)                                                                 \
  ((void)name, (const ROCADE_CONSTANT type*)__builtin_amdgcn_kernarg_segment_ptr())

/// The same address, which is equal in all lanes, but the compiler knows nothing of it: what is read through
/// it is read here and not ahead of time, so that it takes no registers until then.
template <class T> ROCADE_DEVICE const ROCADE_CONSTANT T* opaque(const ROCADE_CONSTANT T* x) {
  asm volatile("" : "+s"(x));
  return x;
}

/// What is made of this value later is made behind what was ordered before.
ROCADE_DEVICE void keep_order(u64& x) { asm volatile("" : "+v"(x)); }

/// The same value, which is equal in all lanes, as a scalar.
ROCADE_DEVICE i32 uniform(i32 x) { return __builtin_amdgcn_readfirstlane(x); }

/// The same, but the compiler knows nothing of it.
ROCADE_DEVICE i32 opaque_uniform(i32 x) {
  i32 same = uniform(x);
  asm volatile("" : "+s"(same));
  return same;
}

/// The value of a lane, which is the same number in all lanes, as a scalar.
ROCADE_DEVICE u64 from_lane(u64 x, i32 lane) {
  const u32 low = static_cast<u32>(__builtin_amdgcn_readlane(static_cast<i32>(x), lane));
  const u32 high = static_cast<u32>(__builtin_amdgcn_readlane(static_cast<i32>(x >> 32), lane));
  return static_cast<u64>(high) << 32 | low;
}

/// f of this lane's value and that of the lane 16 or 32 places away (lane ^ kAway); f does not mind the
/// order.
template <int kAway, class F> ROCADE_DEVICE float fold(float x, F&& f) {
#if defined(__gfx950__)
  typedef u32 Pair __attribute__((ext_vector_type(2)));
  const u32 bits = bits_as<u32>(x);
  Pair both;
  if constexpr (kAway == 32)
    both = __builtin_amdgcn_permlane32_swap(bits, bits, false, false);
  else
    both = __builtin_amdgcn_permlane16_swap(bits, bits, false, false);
  const u32 low = both[0], high = both[1];
  return f(bits_as<float>(low), bits_as<float>(high));
#else
  return f(x, shuffle_xor(x, kAway));
#endif
}

/// To T, to nearest even. A NaN stays one if it is made of 16-bit inputs, whose payload is in its upper half,
/// or by the hardware; this is half of what it costs to care for all.
template <class T, int N> ROCADE_DEVICE Vector<T, N> rounded(Vector<float, N> x) {
  if constexpr (kTarget.max_direct_to_lds_bits == 32 && __is_same(T, bf16)) {
    Vector<u32, N / 2> packed;
    for (int k = 0; k < N / 2; ++k) {
      const float low = x[2 * k], high = x[2 * k + 1];
      u32 a = bits_as<u32>(low), b = bits_as<u32>(high);
      a += 0x7fff + (a >> 16 & 1);
      b += 0x7fff + (b >> 16 & 1);
      packed[k] = __builtin_amdgcn_perm(b, a, 0x07060302);
    }
    return bits_as<Vector<T, N>>(packed);
  } else {
    return narrow<T, N>(x);
  }
}

} // namespace rocade

// Division by a number that the host knows: a multiplication with a magic number that hip_launch.py computes.
#pragma once
#include "arch/device.hpp"

namespace rocade {

/// x / d for the d of a magic number ceil(2^64 / d), 0 for d = 1. Always exact.
ROCADE_DEVICE u32 divide(u32 x, u64 magic) {
  const u32 high = static_cast<u32>(static_cast<unsigned __int128>(magic) * x >> 64);
  return magic == 0 ? x : high;
}

/// x / d for the d of a magic number ceil(2^32 / d), 0 for d = 1. Exact while x < 2^32 / d.
ROCADE_DEVICE u32 divide(u32 x, u32 magic) {
  const u32 high = static_cast<u32>(static_cast<u64>(x) * magic >> 32);
  return magic == 0 ? x : high;
}

} // namespace rocade
